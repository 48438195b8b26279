"""Style and script of the exported page. The colours carry JupyterLab's names, so that every picture finds them."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--jp-ui-font-color1:light-dark(#1f2328,#e8eaed);
--jp-ui-font-color2:light-dark(#5b646e,#a4acb5);
--jp-border-color1:light-dark(#c3c9d0,#5a626b);--jp-border-color2:light-dark(#e4e7eb,#3a4048);
--jp-layout-color1:light-dark(#fff,#16181c);--jp-layout-color2:light-dark(#f6f7f9,#1f2328)}
body{margin:0;font:14px/1.5 system-ui,sans-serif;color:var(--jp-ui-font-color1);background:var(--jp-layout-color1)}
header{position:sticky;top:0;z-index:1;display:flex;flex-wrap:wrap;gap:6px 12px;align-items:center;padding:10px 24px;
background:var(--jp-layout-color2);border-bottom:1px solid var(--jp-border-color2)}
header input{flex:1 1 240px}#said{flex:1 1 100%}#place{font-variant-numeric:tabular-nums;color:var(--jp-ui-font-color2)}
button{font:inherit;padding:2px 10px;border:1px solid var(--jp-border-color1);border-radius:4px;
background:var(--jp-layout-color1);color:inherit;cursor:pointer}
:focus-visible{outline:2px solid #1976d2;outline-offset:1px}
main{padding:8px 24px 32px}section,section>div,main>details{margin:16px 0}section,section>div{overflow-x:auto}
.beside{display:flex;flex-wrap:wrap;gap:8px 28px;align-items:flex-start}.empty{padding:24px 0}
h2{font-size:15px;margin:8px 0}summary{cursor:pointer;color:var(--jp-ui-font-color2)}
table{margin:12px 0}footer,.empty{color:var(--jp-ui-font-color2)}footer{padding:0 24px 24px;font-size:12px}
[hidden]{display:none!important}.now{fill:var(--jp-ui-font-color1);fill-opacity:.13}
"""

SCRIPT = """
const find=id=>document.getElementById(id),at=find('at'),data=JSON.parse(find('data').textContent);
const last=data.frames.length-1,pieces=[...document.querySelectorAll('[data-after]')];
const bars=[...document.querySelectorAll('#run [data-iteration]')];
let wanted=+at.value,open=false;
async function unpack(packed){
  const bytes=Uint8Array.from(atob(packed),c=>c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text();
}
async function show(to){
  const i=wanted=Math.min(Math.max(to,0),last);
  at.value=i;
  find('said').textContent=data.said[i];
  find('place').textContent=i+' of '+last+(last===1?' iteration':' iterations');
  pieces.forEach(piece=>piece.hidden=+piece.dataset.after>i);
  bars.forEach(bar=>bar.classList.toggle('now',+bar.dataset.iteration===i));
  try{
    const html=await unpack(data.frames[i]);
    if(i!==wanted)return;
    const place=find('frame'),fold=place.querySelector('details');
    if(fold)open=fold.open;
    place.innerHTML=html;
    const next=place.querySelector('details');
    if(next)next.open=open;
  }catch(error){
    find('said').textContent='This browser cannot unpack the pictures: open the page in one of 2023 or later.';
  }
}
const steps={ArrowLeft:-1,ArrowRight:1,PageUp:-10,PageDown:10,Home:-1/0,End:1/0};
document.addEventListener('keydown',event=>{
  if(!(event.key in steps)||event.ctrlKey||event.altKey||event.metaKey)return;
  event.preventDefault();
  show(wanted+steps[event.key]);
});
document.querySelectorAll('[data-by]').forEach(b=>b.addEventListener('click',()=>show(wanted+Number(b.dataset.by))));
at.addEventListener('input',()=>show(+at.value));
show(wanted);
"""
