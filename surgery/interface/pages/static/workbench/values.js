// What is in a tensor, in the original and after a step.
(function (sv) {
  "use strict";

  const { element, byId } = sv;
  const SVG = "http://www.w3.org/2000/svg";
  const SIDES = [
    ["before", "Original"],
    ["after", "Changed"],
  ];
  const FIGURES = [
    ["min", "Min"],
    ["max", "Max"],
    ["mean", "Mean"],
    ["std", "Std"],
    ["nan", "NaN"],
    ["infinite", "Infinite"],
  ];

  const shown = (value) => (typeof value === "number" ? sv.number(value) : String(value));

  function svgElement(tag, attributes) {
    const made = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  /** The values of a tensor in two models: figures, histograms, the difference, the first elements, images. */
  class Values {
    constructor(bench) {
      this.bench = bench;
      this.tensor = null;
      this.asked = 0;
      byId("wb-values-step").addEventListener("change", () => this.show(this.tensor));
      byId("wb-values-again").addEventListener("click", () => this.show(this.tensor));
      byId("wb-values-close").addEventListener("click", () => this.close());
    }

    close() {
      this.tensor = null;
      this.asked += 1;
      byId("wb-values").hidden = true;
    }

    /** List the steps after which a tensor can be looked at; what is shown may be that of an earlier state. */
    steps(steps) {
      const select = byId("wb-values-step");
      const before = select.value;
      const options = [element("option", { value: "", text: "the last step" })];
      for (const step of steps)
        if (step.on) options.push(element("option", { value: step.number, text: `${step.number + 1}. ${sv.cut(step.title, 40)}` }));
      select.replaceChildren(...options);
      if (options.some((option) => option.value === before)) select.value = before;
      byId("wb-values-again").hidden = byId("wb-values-old").hidden = this.tensor === null;
    }

    async show(tensor) {
      if (tensor === null) return;
      const number = ++this.asked;
      this.tensor = tensor;
      byId("wb-values").hidden = false;
      byId("wb-values-again").hidden = byId("wb-values-old").hidden = true;
      byId("wb-values-name").textContent = sv.cut(tensor, 100);
      byId("wb-values-body").replaceChildren(element("p", { class: "note", text: "Running the model…" }));
      byId("wb-values").scrollIntoView({ block: "nearest" });
      const step = byId("wb-values-step").value;
      const [ok, found] = await sv.ask("values", { tensor, step: step === "" ? null : Number(step) });
      if (number !== this.asked) return;
      if (!ok) {
        this.close();
        return this.bench.fail(found.error);
      }
      byId("wb-values-body").replaceChildren(...this.parts(found).filter(Boolean));
    }

    parts(found) {
      return [
        this.lacking(found),
        found.histogram ? this.histogram(found.histogram) : null,
        this.figures(found),
        found.difference ? this.difference(found.difference) : null,
        found.images ? this.images(found.images) : null,
        this.first(found),
        element("p", { class: "note", text: `Inputs: ${found.sets.slice(0, 8).join("; ")}` }),
      ];
    }

    lacking(found) {
      if (found.is_original) return element("p", { class: "note", text: "No step has changed the model yet." });
      if (!found.before) return element("p", { text: "The original has no tensor of this name." });
      return found.after ? null : element("p", { text: "Only the original has this tensor; it is no longer in the changed model." });
    }

    histogram(histogram) {
      const sides = SIDES.filter(([key]) => histogram[key]);
      const bins = histogram[sides[0][0]].length;
      const [from, to] = [sv.number(histogram.from), sv.number(histogram.to)];
      const label = `Histogram of ${bins} bins from ${from} to ${to}: ${sides.map(([, name]) => name.toLowerCase()).join(" and ")}`;
      const svg = svgElement("svg", { viewBox: "0 0 240 60", role: "img", "aria-label": label, preserveAspectRatio: "none" });
      for (const [key] of sides) {
        const counts = histogram[key];
        const most = Math.max(...counts, 1);
        const wide = 240 / bins;
        const tops = counts.map((count, k) => [k * wide, 60 - (58 * count) / most]);
        const path = tops.map(([x, y]) => `L${x} ${y}H${x + wide}`).join("");
        svg.append(svgElement("path", { class: "wb-" + key, d: `M0 60${path}V60Z` }));
      }
      const keys = sides.map(([key, name]) => element("span", { class: "wb-key wb-" + key, text: name }));
      const range = element("p", { class: "wb-range" }, element("span", { text: from }), ...keys, element("span", { text: to }));
      return element("div", {}, svg, range);
    }

    figures(found) {
      const sides = SIDES.filter(([key]) => found[key]);
      const head = element("tr", {}, element("td"), ...sides.map(([, name]) => element("th", { scope: "col", text: name })));
      const row = (title, cells) =>
        element("tr", {}, element("th", { scope: "row", text: title }), ...cells.map((text) => element("td", { text })));
      const rows = [
        row("Type", sides.map(([key]) => found[key].dtype)),
        row("Shape", sides.map(([key]) => `[${found[key].shapes[0].join(", ")}]`)),
      ];
      for (const [name, title] of FIGURES)
        if (sides.some(([key]) => found[key][name] !== undefined))
          rows.push(row(title, sides.map(([key]) => shown(found[key][name] ?? "-"))));
      return element("table", { class: "wb-table" }, element("thead", {}, head), element("tbody", {}, ...rows));
    }

    difference(found) {
      const lines = [];
      if (found.unlike) lines.push(`The values are ${found.unlike}.`.replace("are the shapes differ", "cannot be compared: the shapes differ"));
      else if (found.equal) lines.push("All elements are equal, to the bit.");
      else {
        lines.push(`Largest difference ${shown(found.max)}, mean ${shown(found.mean)}.`);
        if (found.where) {
          const { index, original, changed } = found.where;
          lines.push(`Largest at [${index.join(", ")}]: ${shown(original)} became ${shown(changed)} (${found.set}).`);
        }
        const beyond = found.beyond ? `${found.beyond.toLocaleString("en-US")} beyond the tolerance` : "none beyond the tolerance";
        lines.push(`${found.differing.toLocaleString("en-US")} of ${sv.plural(found.elements, "element")} differ, ${beyond}.`);
        const { cosine, snr } = found.metrics;
        if (cosine !== undefined) lines.push(`Cosine similarity ${shown(cosine)}, signal-to-noise ratio ${shown(snr)} dB.`);
      }
      return element("div", { class: "wb-difference" }, ...lines.map((text) => element("p", { text })));
    }

    images(images) {
      const all = [...SIDES, ["difference", "Difference"]].filter(([key]) => images[key]);
      return element("div", { class: "wb-images" }, ...all.map(([key, name]) => this.image(images[key], name)));
    }

    image({ width, height, channels, data }, name) {
      const label = `${name} as an image of ${width} by ${height} pixels`;
      const canvas = element("canvas", { width, height, role: "img", "aria-label": label });
      const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
      const pixels = new Uint8ClampedArray(4 * width * height);
      for (let k = 0; k < width * height; k++)
        for (let c = 0; c < 4; c++)
          pixels[4 * k + c] = c < 3 ? bytes[k * channels + (channels < 3 ? 0 : c)] : channels === 4 ? bytes[4 * k + 3] : 255;
      canvas.getContext("2d").putImageData(new ImageData(pixels, width, height), 0, 0);
      return element("figure", {}, canvas, element("figcaption", { text: name }));
    }

    first(found) {
      const sides = SIDES.filter(([key]) => found[key]);
      const count = Math.max(...sides.map(([key]) => found[key].first.length));
      if (!count) return element("p", { class: "note", text: "It has no elements." });
      const names = ["Element", ...sides.map(([, name]) => name)];
      const head = element("tr", {}, ...names.map((text) => element("th", { scope: "col", text })));
      const rows = Array.from({ length: count }, (_, k) => {
        const cells = sides.map(([key]) => element("td", { text: found[key].first[k] === undefined ? "" : shown(found[key].first[k]) }));
        return element("tr", {}, element("th", { scope: "row", text: k }), ...cells);
      });
      const table = element("table", { class: "wb-table" }, element("thead", {}, head), element("tbody", {}, ...rows));
      const all = Math.max(...sides.map(([key]) => found[key].elements));
      const title = all > count ? `First ${count} of ${sv.plural(all, "element")}` : sv.plural(count, "element");
      return element("details", { class: "wb-more" }, element("summary", { text: title }), table);
    }
  }

  sv.Values = Values;
})(surgeryViewer);
