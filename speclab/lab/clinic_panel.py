"""The clinic in the lab: a run with a fault injected, and what every detector says of the run shown."""

from __future__ import annotations

from ipywidgets import HTML, Dropdown, HBox, VBox

from speclab.errors import CancelledError, SettingsError
from speclab.lab.actions import Actions, action
from speclab.lab.state import LabState
from speclab.lab.widgets import button, on_change, set_if_changed
from speclab.views.explain import plural
from speclab.views.markup import escape, table, tag

HEALTHY = "healthy"
_MARKS = {True: "✗\xa0found", False: "✓\xa0not\xa0found", None: "–\xa0cannot\xa0tell"}


class ClinicPanel(VBox):
    """One row of controls, what the fault chosen does, and below it the newest check; made when first unfolded."""

    def __init__(self, state: LabState, actions: Actions) -> None:
        from speclab.analysis.clinic import FAULTS  # brings torch, which a lab that was just opened does without

        self._state, self._actions, self._faults = state, actions, FAULTS
        self.fault = Dropdown(options=[HEALTHY, *FAULTS], description="fault", tooltip="a fault of a real engine")
        self.fault.add_class("speclab-fault")
        self.start = button(
            "fault-start", "Start with it", "a new run of the prompt above, with this fault injected", "",
            lambda: actions.ask(actions.controller.start, "" if self.fault.value == HEALTHY else self.fault.value),
        )  # fmt: skip
        self.check = button(
            "check", "Check", "what each detector says of the run shown; the models run over its text", "",
            lambda: actions.ask(self.run_check),
        )  # fmt: skip
        self.about, self.found = HTML(), HTML()
        row = HBox([self.fault, self.start, self.check, self.about]).add_class("speclab-group")
        super().__init__([row, self.found], _dom_classes=["speclab-clinic"])
        on_change(self.fault, lambda _: self._describe())
        state.observe(lambda _: self._follow(), names="forks")
        self._follow()
        self._describe()

    @action("checking", "check", yields=True)
    def run_check(self) -> None:
        """Runs the detectors one after another on the run shown, and lists what they say."""
        from speclab.analysis.clinic import findings

        session, state = self._actions.controller.session, self._state
        if session is None or not state.frame.live:
            raise SettingsError("No live run is shown, and a check runs its models: Step or Run live, then check.")
        said = []
        for finding in findings(session):
            said.append(finding)
            state.status = f"Checking: {len(said)} of {len(self._faults)} detectors are done."
            if self._actions.cancelled.is_set():
                raise CancelledError("Stopped: the check was not finished.")
        name, done = self._actions.controller.runs.present.describe(present=False).label, len(session.steps)
        rows = [(_MARKS[each.fired], each.fault, each.evidence) for each in said]
        caption = f"Check of {name}, after {plural(done, 'iteration')}"
        set_if_changed(self.found, value=table(caption, ("", "detector", "evidence"), rows))
        found = ", ".join([each.fault for each in said if each.fired])
        state.status = f"Check after {plural(done, 'iteration')}: {f'found {found}' if found else 'no fault found'}."

    def _follow(self) -> None:
        """The switch says which fault the run shown has."""
        set_if_changed(self.fault, value=self._actions.controller.fault or HEALTHY)

    def _describe(self) -> None:
        fault = self._faults.get(self.fault.value)
        words = tag("span", escape(fault.wrong), title=escape(f"Seen in {fault.seen_in}")) if fault else ""
        set_if_changed(self.about, value=words)
