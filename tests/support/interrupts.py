"""An error in the n-th call of a module, or before the n-th line of some folders of speclab."""

import os
import sys
from contextlib import contextmanager

import pytest
import torch
from support.records import assert_alike

import speclab

HOME = os.path.dirname(speclab.__file__)


@contextmanager
def at_call(number, error):
    """Raises in this call, of any module; gives the calls so far."""
    call = torch.nn.Module.__call__
    seen = []

    def counted(module, *given, **named):
        seen.append(module)
        if len(seen) == number:
            raise error
        return call(module, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Module, "__call__", counted)
        yield seen


def at_line(*places):
    """As `at_call`, before a line of these folders and files."""
    inside = tuple(os.path.join(HOME, place) for place in places)

    @contextmanager
    def stop(number, error):
        seen = []

        def line(frame, event, _):
            if event == "line":
                seen.append(frame.f_lineno)
                if len(seen) == number:
                    raise error
            return line

        def called(frame, *_):
            return line if frame.f_code.co_filename.startswith(inside) else None

        before = sys.gettrace()
        sys.settrace(called)
        try:
            yield seen
        finally:
            sys.settrace(before)

    return stop


def stopped_everywhere(begin, stop, tries, kinds=(KeyboardInterrupt,)):
    """Stops the iterations of a text at events spread over an iteration, each in turn at a later one, in as many
    texts as it takes; compares what comes after with a run that was not stopped.

    Args:
        tries: about so many; more than an iteration has events: all of them.
        kinds: of the errors that stop it, in turn.

    Returns:
        What was raised, and the last text.
    """
    whole = begin()
    forks = {}
    most = 0
    while not whole.done:
        forks[len(whole.steps)] = whole.fork().step()
        with stop(0, None) as seen:
            whole.step()
        most = max(most, len(seen))
    raised = []
    number = 1
    while number <= most:
        run = begin()
        while not run.done:
            index = len(run.steps)
            with stop(number, kinds[len(raised) % len(kinds)]("out of memory")) as seen:
                try:
                    run.step()
                except (*kinds, MemoryError) as error:
                    raised.append(error)
                    number += max(1, most // tries)
            if len(run.steps) == index:
                assert_alike(run.fork().step(), forks[index])
                run.step()
            run.goto(index + 1)
            assert_alike(run.steps[index], whole.steps[index])
        assert run.token_ids == whole.token_ids
    return raised, run
