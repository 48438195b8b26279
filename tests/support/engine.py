"""The page's scripts in the engine that draws pictures: what an expression of JavaScript is."""

import json

from quickjs import Context

from speclab.views.drawing import page_script

_RUN = """
globalThis.result = globalThis.failed = null;
(async data => JSON.stringify(await (%s)))(JSON.parse(%s)).then(
  text => { globalThis.result = text; },
  error => { globalThis.failed = `${error}\\n${error.stack}`; });
"""


def evaluated(expression, data):
    """The value of an expression, a promise or not, in the page's scope; `data` is its input."""
    context = Context()
    context.eval(page_script())
    context.eval(_RUN % (expression, json.dumps(json.dumps(data))))
    while context.execute_pending_job():
        pass
    assert context.get("failed") is None, context.get("failed")
    return json.loads(context.get("result"))
