// Colors of nodes by their cost, by their time, or by what executes them.
(function (sv) {
  "use strict";

  const { element, byId } = sv;
  const UNITS = {
    flops: (value) => sv.number(value) + " FLOP",
    bytes: (value) => sv.number(value) + " B",
    seconds: (value) => sv.duration(value),
  };
  const TITLES = { flops: "Operations", bytes: "Bytes moved", seconds: "Time", executed: "Executed by" };
  // Shares of the largest figure above which a node is in the next class.
  const SHARES = [0, 0.02, 0.05, 0.1, 0.2, 0.5];
  const HUES = [214, 150, 280, 45, 190, 322];
  const MOST_LISTED = 8;

  const probe = document.createElement("canvas").getContext("2d");
  const hex = (hue, saturation, light) => {
    probe.fillStyle = `hsl(${hue} ${saturation}% ${light}%)`;
    return probe.fillStyle;
  };

  function tint(hue, saturation, light, isDark) {
    return {
      fill: hex(hue, saturation, light),
      line: hex(hue, saturation * 0.8, isDark ? light + 16 : light - 22),
      strong: hex(hue, saturation, isDark ? light + 28 : light - 30),
    };
  }

  /** The control that colors nodes, and the legend of what the colors mean. */
  class Heat {
    constructor(bench) {
      this.bench = bench;
      this.asked = 0;
      byId("wb-heat").addEventListener("change", () => this.show());
    }

    /** Color a new drawing as before, unless that would measure again. */
    redraw() {
      const kind = byId("wb-heat").value;
      if (kind === "seconds" || kind === "executed") byId("wb-heat").value = "";
      if (kind) this.show();
    }

    async show() {
      const kind = byId("wb-heat").value;
      const number = ++this.asked;
      if (!kind) return this.clear();
      this.bench.say(kind === "flops" || kind === "bytes" ? "Counting…" : "Running the model…");
      const [ok, found] = await sv.ask("heat", { kind });
      if (number !== this.asked) return;
      this.bench.say("");
      if (!ok) {
        byId("wb-heat").value = "";
        this.clear();
        return this.bench.tell(found.error.message);
      }
      const view = this.bench.view;
      const heat = kind === "executed" ? this.byProvider(view.model, found) : this.byFigure(view.model, found);
      view.setHeat(heat);
      this.legend(found, heat);
      document.body.dataset.heat = kind;
    }

    clear() {
      this.bench.view?.setHeat(null);
      byId("wb-legend").hidden = true;
      delete document.body.dataset.heat;
    }

    /** Return the class of each node: ports keep theirs, and `classOf` is asked for nodes of the last state. */
    classes(model, classOf) {
      return Uint8Array.from({ length: model.n }, (_, row) => {
        if (model.isPort(row)) return sv.PORT_FAMILY;
        return model.died[row] >= 0 ? 0 : classOf(model.strings[model.name[row]]);
      });
    }

    filled(tints, palette) {
      const ports = sv.palette(this.bench.view.root).families[sv.PORT_FAMILY];
      if (palette.isForced) return sv.FAMILIES.map(() => ports);
      return sv.FAMILIES.map((_, k) => (k === sv.PORT_FAMILY ? ports : tints[Math.min(k, tints.length - 1)]));
    }

    byFigure(model, found) {
      const unit = UNITS[found.kind];
      const most = Math.max(...Object.values(found.values), 0) || 1;
      const level = (value) => SHARES.filter((share) => value > share * most).length;
      const classes = this.classes(model, (name) => level(found.values[name] || 0));
      const names = SHARES.map((share) => `over ${unit(share * most)}`);
      const tints = ({ isDark }) =>
        [tint(0, 0, isDark ? 14 : 96, isDark)].concat(
          SHARES.map((_, k) => (isDark ? tint(44 - 7 * k, 30 + 9 * k, 14 + 4 * k, true) : tint(52 - 8 * k, 88, 93 - 6 * k, false))),
        );
      return {
        classes,
        names: this.named(["none, or not known", "up to " + unit(SHARES[1] * most), ...names.slice(1)]),
        tints: (palette) => this.filled(tints(palette), palette),
        count: SHARES.length + 1,
      };
    }

    byProvider(model, found) {
      const providers = Array.from(new Set(Object.values(found.providers))).sort().slice(0, HUES.length);
      const classes = this.classes(model, (name) => providers.indexOf(found.providers[name]) + 1);
      const tints = ({ isDark }) =>
        [tint(0, 0, isDark ? 14 : 96, isDark)].concat(
          HUES.map((hue) => (isDark ? tint(hue, 45, 26, true) : tint(hue, 70, 84, false))),
        );
      const titles = providers.map((name) => name.replace("ExecutionProvider", ""));
      return {
        classes,
        names: this.named(["merged or removed by the runtime", ...titles]),
        tints: (palette) => this.filled(tints(palette), palette),
        count: providers.length + 1,
      };
    }

    named(names) {
      return sv.FAMILIES.map((family, k) => (k === sv.PORT_FAMILY ? family.name : names[k] || ""));
    }

    legend(found, heat) {
      const colors = this.bench.view.palette.families;
      const { died } = this.bench.view.model;
      const keys = element("ul", {});
      for (let k = 0; k < heat.count; k++) {
        const count = heat.classes.reduce((sum, one, row) => sum + (one === k && died[row] < 0), 0);
        const swatch = element("i", { class: "sv-swatch" });
        swatch.style.background = colors[k].fill;
        swatch.style.borderColor = colors[k].line;
        keys.append(element("li", {}, swatch, `${heat.names[k]}: ${count.toLocaleString("en-US")}`));
      }
      const title = element("h2", { text: TITLES[found.kind], tabindex: "-1" });
      byId("wb-legend").replaceChildren(title, keys, element("p", { class: "note", text: found.note }), ...this.largest(found));
      byId("wb-legend").hidden = false;
    }

    /** Return the nodes with the largest figures, each of which can be selected. */
    largest(found) {
      const unit = UNITS[found.kind];
      if (!unit) {
        const made = found.made.slice(0, 40).map((name) => element("li", { class: "mono", text: sv.cut(name, 60) }));
        if (!made.length) return [];
        return [element("details", {}, element("summary", { text: "Made by the runtime" }), element("ul", {}, ...made))];
      }
      const all = Object.entries(found.values).sort((a, b) => b[1] - a[1]);
      const total = all.reduce((sum, [, value]) => sum + value, 0) || 1;
      const items = all.slice(0, MOST_LISTED).map(([name, value]) => {
        const text = `${sv.cut(name, 40)}: ${unit(value)}, ${sv.number((100 * value) / total)} %`;
        const go = () => {
          this.bench.selection.chosen.clear();
          this.bench.selection.chooseNames([name]);
        };
        return element("li", {}, element("button", { type: "button", text, onclick: go }));
      });
      const fold = element("details", {}, element("summary", { text: `Largest, of ${unit(total)}` }), element("ol", {}, ...items));
      return [fold];
    }
  }

  sv.Heat = Heat;
})(surgeryViewer);
