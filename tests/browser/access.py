"""What the page says of itself to someone who does not see it, or sees little: contrast and names."""

from __future__ import annotations

CONTRAST = """least => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const light = c => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => {
    const v = c[i] / 255; return sum + share * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  }, 0);
  const behind = at => {
    const layers = [];
    for (let e = at; e; e = e.parentElement) {
      const layer = rgba(getComputedStyle(e).backgroundColor); layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255, 1]);
  };
  const found = {}, lab = document.querySelector('.speclab-lab');
  const walk = document.createTreeWalker(lab, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim(), at = walk.currentNode.parentElement, style = getComputedStyle(at);
    if (!/[\\p{L}\\p{N}]/u.test(text) || !at.checkVisibility({visibilityProperty: true})) continue;
    if (at.closest('style, :disabled, option, .js-plotly-plot')) continue;  // colours of pictures: test_view_registry
    const ink = rgba(at.closest('svg') ? style.fill : style.color), paper = behind(at);
    ink[3] *= Number(style.opacity);
    const [a, b] = [light(over(ink, paper)), light(paper)].sort((a, b) => b - a), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least) found[`${at.tagName}.${at.getAttribute('class') || at.parentElement.getAttribute('class')}`]
      = `${ratio.toFixed(2)} ${text.slice(0, 40)}`;
  }
  return found;
}"""
"""Visible text of the lab whose colour and what lies behind it, alphas laid over each other, differ by less."""

NAMELESS = """() => [...document.querySelector('.speclab-lab').querySelectorAll(
    'button, select, input, textarea, summary, [tabindex="0"]')]
  .filter(e => e.checkVisibility({visibilityProperty: true}))
  .filter(e => e.tabIndex >= 0 && !e.matches(':disabled') && !e.closest('.js-plotly-plot'))
  .filter(e => !['aria-label', 'title'].some(name => e.getAttribute(name)?.trim()) && !e.getAttribute('placeholder')
    && !(e.labels?.length && e.labels[0].innerText.trim()) && !e.innerText?.trim()
    && !(e.getAttribute('role') === 'slider' && e.closest('.widget-inline-hbox')?.innerText.trim()))
  .map(e => e.outerHTML.slice(0, 160))"""
"""Controls that Tab reaches and that have no name; a slider's is the label beside it."""
