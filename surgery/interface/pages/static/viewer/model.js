// The drawing document as typed arrays, and what was done to each node between two states.
(function (sv) {
  "use strict";

  /** What happened to a node up to the chosen state. */
  sv.UNBORN = 0;
  sv.SAME = 1;
  sv.ADDED = 2;
  sv.ALTERED = 3;
  sv.REMOVED = 4;
  // It was removed before the state to compare with: it is not drawn.
  sv.GONE = 5;

  function ints(values, length) {
    return values ? Int32Array.from(values) : new Int32Array(length);
  }

  /** Return [start, items]: the items of `keys` equal to k stand in items[start[k]..start[k + 1]]. */
  sv.bucket = function (keys, count) {
    const start = new Int32Array(count + 1);
    for (let i = 0; i < keys.length; i++) if (keys[i] >= 0) start[keys[i] + 1]++;
    for (let k = 0; k < count; k++) start[k + 1] += start[k];
    const items = new Int32Array(start[count]);
    const next = start.slice();
    for (let i = 0; i < keys.length; i++) if (keys[i] >= 0) items[next[keys[i]]++] = i;
    return [start, items];
  };

  // An item is a node (its row) or a group (number of nodes + its row). A room is what holds items: 0 is the top
  // level, 1 + g the inside of group g.
  sv.Model = class {
    constructor(document) {
      if (document.format_version !== 1) {
        throw new Error("this viewer reads drawings of format version 1, not " + document.format_version);
      }
      this.document = document;
      this.title = document.title || "";
      this.strings = document.strings;
      this.states = document.states && document.states.length ? document.states : [{ label: "", nodes: 0 }];
      this.readNodes(document.nodes);
      this.readGroups(document.groups || {});
      this.readEdges(document.edges || {});
      this.readChanges(document);
      this.details = document.details || [];
      this.labels = new Array(this.n + this.g);
      this.families = null;
      this.lowered = null;
    }

    /** Return the number of the step that led to a state, as in the table of steps; most steps change nothing. */
    stepOf(state) {
      const { step } = this.states[state] || {};
      return step === undefined ? state : step + 1;
    }

    readNodes(nodes) {
      const n = (this.n = nodes.op.length);
      for (const name of ["op", "domain", "name", "layer", "order", "x", "pass", "killer", "born"]) {
        this[name] = ints(nodes[name], n);
      }
      this.died = nodes.died ? ints(nodes.died) : new Int32Array(n).fill(-1);
      this.group = nodes.group ? ints(nodes.group) : new Int32Array(n).fill(-1);
      const ports = this.document.ports || {};
      this.port = new Int32Array(n).fill(-1);
      (ports.node || []).forEach((node, row) => (this.port[node] = row));
      this.portKind = ports.kind || [];
      this.portType = ports.type || [];
    }

    readGroups(groups) {
      const g = (this.g = groups.parent ? groups.parent.length : 0);
      this.parent = ints(groups.parent, g);
      for (const name of ["name", "kind", "layer", "order", "x", "count", "instance", "owner"]) {
        this["group" + name[0].toUpperCase() + name.slice(1)] = ints(groups[name], g);
      }
      this.isRepeat = Uint8Array.from(this.groupKind, (kind) => (this.strings[kind] === "repeat" ? 1 : 0));
      this.depth = new Int32Array(g).fill(-1);
      for (let i = 0; i < g; i++) this.depthOf(i);
      this.deepFirst = Int32Array.from(this.depth.keys()).sort((a, b) => this.depth[b] - this.depth[a]);
    }

    depthOf(group) {
      const path = [];
      while (group >= 0 && this.depth[group] < 0) {
        path.push(group);
        this.depth[group] = 0;
        group = this.parent[group];
      }
      let depth = group < 0 ? 0 : this.depth[group] + 1;
      while (path.length) this.depth[path.pop()] = depth++;
    }

    readEdges(edges) {
      const m = (this.m = edges.from ? edges.from.length : 0);
      this.from = ints(edges.from, m);
      this.to = ints(edges.to, m);
      this.value = ints(edges.value, m);
      this.type = ints(edges.type, m);
      this.edgeBorn = ints(edges.born, m);
      this.edgeDied = edges.died ? ints(edges.died) : new Int32Array(m).fill(-1);
      [this.outStart, this.outEdges] = sv.bucket(this.from, this.n);
      [this.inStart, this.inEdges] = sv.bucket(this.to, this.n);
    }

    readChanges(document) {
      const altered = document.altered || {};
      this.alteredNode = ints(altered.node, 0);
      this.alteredState = ints(altered.state, 0);
      this.alteredWhat = ints(altered.what, 0);
      [this.alteredStart, this.alteredRows] = sv.bucket(this.alteredNode, this.n);
      const links = document.links || {};
      this.linkFrom = ints(links.from, 0);
      this.linkTo = ints(links.to, 0);
      [this.becameStart, this.becameRows] = sv.bucket(this.linkFrom, this.n);
      [this.madeStart, this.madeRows] = sv.bucket(this.linkTo, this.n);
    }

    isGroup(item) {
      return item >= this.n;
    }

    /** Return the room that an item stands in. */
    roomOf(item) {
      return 1 + (item < this.n ? this.group[item] : this.parent[item - this.n]);
    }

    /** Return whether a row of nodes is an input or output of the graph. */
    /** Return whether a node is a Constant: removed ones are many, and say little. */
    isConstant(node) {
      return node < this.n && this.strings[this.op[node]] === "Constant";
    }

    isPort(node) {
      return this.port[node] >= 0 || this.strings[this.domain[node]] === "surgery.port";
    }

    /** Return the text in the box of an item, as it stands in the file. */
    rawLabel(item) {
      if (item >= this.n) return this.strings[this.groupName[item - this.n]];
      return this.strings[this.isPort(item) ? this.name[item] : this.op[item]];
    }

    /** Return the text in the box of an item, made visible and cut. */
    label(item) {
      return (this.labels[item] ??= sv.cut(this.rawLabel(item), 48));
    }

    /** Return the name of an item as one line for lists, cut. */
    line(item) {
      if (item >= this.n || this.isPort(item)) return this.label(item);
      const name = this.strings[this.name[item]];
      return name ? this.label(item) + "  " + sv.cut(name, 90) : this.label(item);
    }

    /** Return the rows that `node` became, directly. */
    became(node) {
      return Array.from(
        this.becameRows.subarray(this.becameStart[node], this.becameStart[node + 1]),
        (row) => this.linkTo[row],
      );
    }

    /** Return the rows that `node` was made from, directly. */
    madeFrom(node) {
      return Array.from(
        this.madeRows.subarray(this.madeStart[node], this.madeStart[node + 1]),
        (row) => this.linkFrom[row],
      );
    }

    /** Return the rows at the far end of the lineage: those that are in the model at the end, or were at its beginning. */
    lineage(node, step, isEnd) {
      const found = [];
      const seen = new Set([node]);
      const stack = [node];
      while (stack.length) {
        const at = stack.pop();
        for (const next of step.call(this, at).reverse()) {
          if (seen.has(next)) continue;
          seen.add(next);
          if (isEnd(next)) found.push(next);
          else stack.push(next);
        }
      }
      return found;
    }

    descendants(node) {
      return this.lineage(node, this.became, (row) => this.died[row] < 0);
    }

    origins(node) {
      return this.lineage(node, this.madeFrom, (row) => this.born[row] === 0);
    }

    /** Return what happened to `node` from state `since` to `state`. */
    statusOf(node, state, since) {
      const died = this.died[node];
      if (this.born[node] > state) return sv.UNBORN;
      if (died >= 0 && died <= state) return died > since ? sv.REMOVED : sv.GONE;
      if (this.born[node] > since) return sv.ADDED;
      for (let at = this.alteredStart[node]; at < this.alteredStart[node + 1]; at++) {
        const when = this.alteredState[this.alteredRows[at]];
        if (when > since && when <= state) return sv.ALTERED;
      }
      return sv.SAME;
    }

    /** Fill `status[item]` for all items, and `counts[4 * g + ...]` with nodes alive, added, altered, removed of groups. */
    fillStatus(status, counts, state, since) {
      const { n, g } = this;
      counts.fill(0);
      for (let i = 0; i < n; i++) {
        const is = (status[i] = this.statusOf(i, state, since));
        const group = this.group[i];
        if (group < 0 || is === sv.UNBORN || is === sv.GONE) continue;
        if (is !== sv.REMOVED) counts[4 * group]++;
        if (is !== sv.SAME) counts[4 * group + is - 1]++;
      }
      for (const group of this.deepFirst) {
        const up = this.parent[group];
        if (up >= 0) for (let k = 0; k < 4; k++) counts[4 * up + k] += counts[4 * group + k];
        status[n + group] = groupStatus(counts, 4 * group);
      }
    }

    /** Return the lower-case strings, made when first asked for. */
    lower() {
      return (this.lowered ??= this.strings.map((text) => text.toLowerCase()));
    }

    /** Return the shape of a type: "1×128×768" of "float[1,128,768]"; "" without one. */
    shape(type) {
      const text = this.strings[type] || "";
      const open = text.indexOf("[");
      if (open < 0 || !text.endsWith("]")) return "";
      return (
        text
          .slice(open + 1, -1)
          .split(",")
          .map((dim) => dim.trim() || "?")
          .join("×") || "scalar"
      );
    }
  };

  function groupStatus(counts, at) {
    const [alive, added, altered, removed] = counts.subarray(at, at + 4);
    if (alive && added === alive && !removed) return sv.ADDED;
    if (alive) return added + altered + removed ? sv.ALTERED : sv.SAME;
    return removed ? sv.REMOVED : sv.UNBORN;
  }
})(surgeryViewer);
