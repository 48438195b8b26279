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
