// What is in a tensor.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  /** The values of a tensor: figures, a histogram and the first elements. */
  class Values {
    constructor(bench) {
      this.bench = bench;
    }

    async show(tensor) {
      this.bench.say(`Running the model to look at ${sv.cut(tensor, 60)}…`);
      const [ok, found] = await sv.ask("values", { tensor });
      this.bench.say("");
      if (!ok) return this.bench.fail(found.error);
      const box = element("div", { class: "wb-message info wb-values" });
      const shape = (found.shapes || []).map((dims) => "[" + dims.join(", ") + "]").join(", ");
      box.append(element("p", {}, element("b", { text: sv.cut(found.name, 100) }), ` ${found.dtype} ${shape}`));
      if (found.histogram) {
        const { min, max, mean, std, nan, infinite } = found;
        const figures = [`min ${sv.number(min)}`, `max ${sv.number(max)}`, `mean ${sv.number(mean)}`];
        figures.push(`std ${sv.number(std)}`, `${nan} NaN`, `${infinite} infinite`);
        box.append(element("p", { text: figures.join(", ") }), this.histogram(found.histogram));
      }
      const first = (found.first || []).slice(0, 16).map((value) => (typeof value === "number" ? sv.number(value) : value));
      box.append(element("p", { class: "mono", text: first.join(" ") + (found.elements > 16 ? " …" : "") }));
      byId("wb-message").replaceChildren(box);
    }

    histogram({ counts, from, to }) {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const label = `Histogram of ${counts.length} bins from ${sv.number(from)} to ${sv.number(to)}`;
      for (const [key, value] of Object.entries({ viewBox: "0 0 240 60", role: "img", "aria-label": label }))
        svg.setAttribute(key, value);
      svg.setAttribute("preserveAspectRatio", "none");
      const most = Math.max(...counts, 1);
      counts.forEach((count, k) => {
        const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        const [wide, high] = [240 / counts.length, (60 * count) / most];
        for (const [key, value] of Object.entries({ x: k * wide, y: 60 - high, width: wide - 1, height: high }))
          bar.setAttribute(key, value);
        svg.append(bar);
      });
      return svg;
    }
  }

  sv.Values = Values;
})(surgeryViewer);
