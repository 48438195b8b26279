"""A button that copies a text to the clipboard, in the browser alone: it works without a kernel, a module or a CDN."""

from __future__ import annotations

from speclab.views.markup import tag

COPIED = "Copied: paste it into a spreadsheet or a text."
_SCRIPT = """(async button=>{
const said=button.nextElementSibling,text=button.dataset.copy;
said.textContent='';
try{await navigator.clipboard.writeText(text)}
catch{
const area=document.createElement('textarea');
area.value=text;area.style.position='fixed';document.body.append(area);area.select();
let done=false;
try{done=document.execCommand('copy')}catch{}
area.remove();button.focus();
if(!done){said.textContent=button.dataset.otherwise;return}
}
said.textContent=button.dataset.copied;
})(this)"""


def copy_button(name: str, text: str, otherwise: str, tooltip: str) -> str:
    """The button, and beside it what came of a press, read out by a screen reader.

    Args:
        name: what it says; its class is `speclab-copy`.
        text: what it copies.
        otherwise: said where the browser lets no page copy.
        tooltip: what it is for.
    """
    button = tag(
        "button", name, type="button", class_="jupyter-button widget-button speclab-copy", title=tooltip,
        data_copy=text, data_copied=COPIED, data_otherwise=otherwise, onclick=_SCRIPT,
        data_lm_suppress_shortcuts="true",
    )  # fmt: skip
    return button + tag("span", class_="sl-muted", role="status", aria_live="polite", style="margin-left:8px")
