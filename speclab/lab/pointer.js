// A click on a node, in the tree or in the mask, tells the kernel its number. The pictures stay plain SVG.
export default {
  render({ model, el }) {
    const hear = event => {
      const drawn = event.target.closest?.(".speclab-tree [data-node], .speclab-mask [data-node]");
      const node = Number(drawn?.dataset.node ?? -1);
      if (node >= 0 && el.closest(".speclab-lab")?.contains(drawn)) model.send({ node });
    };
    document.addEventListener("click", hear);
    return () => document.removeEventListener("click", hear);
  },
};
