// What is selected: names of nodes and tensors, each with the row of its node.
(function (sv) {
  "use strict";

  /** The selected nodes and tensors. */
  class Selection {
    constructor(bench) {
      this.bench = bench;
      this.chosen = new Map();
      this.isQuiet = false;
    }

    select(item, isAdding) {
      if (this.isQuiet) return;
      if (!isAdding) this.chosen.clear();
      if (item >= 0) {
        const names = this.namesOf(item);
        const isThere = names.every(([name]) => this.chosen.has(name));
        for (const [name, row] of names) {
          if (isAdding && isThere) this.chosen.delete(name);
          else this.chosen.set(name, row);
        }
      }
      this.light();
      this.bench.offers.show();
    }

    /** Return the nodes of an item with their names: of a group all that are in it, in every instance of a repeat. */
    namesOf(item) {
      const { model } = this.bench.view;
      const name = (row) => model.strings[model.name[row]];
      if (item < model.n) return this.isThere(item) ? [[name(item), item]] : [];
      const found = [];
      for (let row = 0; row < model.n; row++) {
        if (!this.isThere(row) || model.isPort(row)) continue;
        for (let at = model.group[row]; at >= 0; at = model.parent[at])
          if (at === item - model.n) {
            found.push([name(row), row]);
            break;
          }
      }
      return found;
    }

    /** Return the repeated blocks around the selected nodes, innermost first, each with the same nodes of all instances. */
    repeats() {
      const { model } = this.bench.view;
      const rows = Array.from(this.chosen.values());
      if (!rows.length || rows.some((row) => row < 0 || model.isPort(row))) return [];
      const found = [];
      for (let at = model.group[rows[0]]; at >= 0; at = model.parent[at]) {
        if (!model.isRepeat[at]) continue;
        const keys = new Set(rows.map((row) => this.placeIn(at, row)));
        if (keys.has(null)) continue;
        const names = [];
        for (let row = 0; row < model.n; row++)
          if (this.isThere(row) && !model.isPort(row) && keys.has(this.placeIn(at, row))) names.push(model.strings[model.name[row]]);
        if (names.length > rows.length) found.push({ count: model.groupCount[at], names });
      }
      return found;
    }

    /** Return where a node stands in an instance of a repeated block: the same in each, null if it is not in the block. */
    placeIn(repeat, row) {
      const { model } = this.bench.view;
      const place = [model.op[row], model.layer[row], model.order[row]];
      let group = model.group[row];
      while (group >= 0 && model.parent[group] !== repeat) {
        place.push(model.groupLayer[group], model.groupOrder[group]);
        group = model.parent[group];
      }
      return group < 0 ? null : place.join();
    }

    /** Return whether a row is in the model after the last step. */
    isThere(row) {
      return this.bench.view.model.died[row] < 0;
    }

    chooseNames(names) {
      const { model } = this.bench.view;
      const rows = new Map();
      for (let row = 0; row < model.n; row++) if (this.isThere(row)) rows.set(model.strings[model.name[row]], row);
      for (const name of names) if (rows.has(name)) this.chosen.set(name, rows.get(name));
      const first = this.chosen.values().next().value;
      if (first !== undefined) {
        this.isQuiet = true;
        this.bench.view.go(first, { isAtOnce: true });
        this.isQuiet = false;
      }
      this.light();
      this.bench.offers.show();
    }

    /** Select nodes by name, and nothing else. */
    only(names) {
      this.chosen.clear();
      this.chooseNames(names);
    }

    light() {
      this.bench.view.lit = Array.from(this.chosen.values()).filter((row) => row >= 0 && this.bench.view.scene.shown[row]);
      this.bench.view.invalidate();
    }

    /** Return the tensors of the only selected node: its outputs, which can be selected instead. */
    tensors() {
      if (this.chosen.size !== 1) return [];
      const [row] = this.chosen.values();
      const { model } = this.bench.view;
      if (row < 0 || model.isPort(row)) return [];
      const outputs = model.details[row]?.outputs || [];
      return outputs.map(([name]) => (typeof name === "number" ? model.strings[name] : name)).filter(Boolean);
    }

    chooseTensor(name) {
      this.chosen.clear();
      this.chosen.set(name, -1);
      this.bench.view.lit = [];
      this.bench.offers.show();
    }
  }

  sv.Selection = Selection;
})(surgeryViewer);
