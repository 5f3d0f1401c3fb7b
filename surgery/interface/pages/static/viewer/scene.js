// What is drawn: boxes with places in the plane, and edges between them.
(function (sv) {
  "use strict";

  // An edge of the scene leads from box to box; many edges of the graph may be one.
  sv.Scene = class {
    constructor(model, layout) {
      this.model = model;
      this.layout = layout;
      const items = model.n + model.g;
      this.x = new Float64Array(items);
      this.y = new Float64Array(items);
      // 0: not drawn, 1: a box, 2: the frame of an opened group.
      this.shown = new Uint8Array(items);
      this.rep = new Int32Array(items);
      this.status = new Uint8Array(items);
      this.counts = new Int32Array(4 * model.g);
      this.state = model.states.length - 1;
      this.since = 0;
      this.showsRemoved = model.states.length > 1;
      this.leaves = new Int32Array(0);
      this.frames = new Int32Array(0);
    }

    setState(state, since) {
      this.state = state;
      this.since = since;
      this.model.fillStatus(this.status, this.counts, state, since);
    }

    /** Return whether what happened to an item leaves something of it to draw. */
    isDrawn(item) {
      const status = this.status[item];
      return status === sv.REMOVED ? this.showsRemoved : status !== sv.UNBORN && status !== sv.GONE;
    }

    /** Return whether a node is drawn faintly: a removed Constant, of which there are many. */
    isFaded(item) {
      return this.status[item] === sv.REMOVED && this.model.isConstant(item);
    }

    /** Take places from the layout, then lift the edges to what is shown. */
    rebuild() {
      this.place();
      this.represent();
      this.indexBoxes();
      this.liftEdges();
    }

    place() {
      const { layout, model } = this;
      const { n } = model;
      this.shown.fill(0);
      const leaves = [];
      const frames = [];
      const rooms = [[0, 0, 0]];
      while (rooms.length) {
        const [room, x, y] = rooms.pop();
        for (const item of layout.rows[room].items) {
          this.x[item] = x + layout.left[item];
          this.y[item] = y + layout.top[item];
          if (!this.isDrawn(item)) continue;
          if (item >= n && layout.open[item - n]) {
            this.shown[item] = 2;
            frames.push(item);
            rooms.push([item - n + 1, ...this.insideOf(item)]);
          } else {
            this.shown[item] = 1;
            leaves.push(item);
          }
        }
      }
      this.leaves = Int32Array.from(leaves);
      this.frames = Int32Array.from(frames).sort((a, b) => model.depth[a - n] - model.depth[b - n]);
      this.width = layout.roomWidth[0];
      this.height = layout.roomHeight[0];
    }

    /** Return where the room of an opened group begins. */
    insideOf(item) {
      const { layout } = this;
      const room = item - this.model.n + 1;
      return [this.x[item] + (layout.width[item] - layout.roomWidth[room]) / 2, this.y[item] + sv.HEADER];
    }

    /** Find the box that stands for each item: itself, the closed group around it, or the frame of its repeat. */
    represent() {
      const { model, layout, rep } = this;
      const { n, g } = model;
      for (let k = g - 1; k >= 0; k--) {
        const group = model.deepFirst[k];
        const item = n + group;
        const up = model.parent[group];
        const isHere = up < 0 || (rep[n + up] === n + up && layout.open[up] && layout.isChosen(item));
        rep[item] = isHere ? item : rep[n + up];
      }
      for (let i = 0; i < n; i++) {
        const up = model.group[i];
        rep[i] = up < 0 || (rep[n + up] === n + up && layout.open[up]) ? i : rep[n + up];
      }
    }

    indexBoxes() {
      const { leaves, layout } = this;
      const [left, top, right, bottom] = [0, 1, 2, 3].map(() => new Float64Array(leaves.length));
      leaves.forEach((item, at) => {
        left[at] = this.x[item];
        top[at] = this.y[item];
        right[at] = this.x[item] + layout.width[item];
        bottom[at] = this.y[item] + layout.height[item];
      });
      this.boxes = new sv.Grid(left, top, right, bottom, leaves.length);
    }

    /** Return what is left of an edge of the graph: 0 nothing, 1 a ghost, 2 an edge, 3 a new edge. */
    edgeStatus(edge) {
      const { model } = this;
      const died = model.edgeDied[edge];
      if (model.edgeBorn[edge] > this.state) return 0;
      if (died >= 0 && died <= this.state) return this.showsRemoved && died > this.since ? 1 : 0;
      if (model.edgeBorn[edge] <= this.since) return 2;
      // An edge of a new node is as new as the node, which says so: what is told is that old nodes were tied anew.
      const [from, to] = [model.from[edge], model.to[edge]];
      return this.rep[from] === from &&
        this.rep[to] === to &&
        this.status[from] !== sv.ADDED &&
        this.status[to] !== sv.ADDED
        ? 3
        : 2;
    }

    liftEdges() {
      const { model, rep } = this;
      const items = model.n + model.g;
      const rowOf = new Map();
      const [from, to, many, kind, first] = [[], [], [], [], []];
      for (let edge = 0; edge < model.m; edge++) {
        const is = this.edgeStatus(edge);
        if (!is || model.from[edge] < 0 || model.to[edge] < 0) continue;
        const [a, b] = [rep[model.from[edge]], rep[model.to[edge]]];
        if (a === b || !this.shown[a] || !this.shown[b]) continue;
        const key = a * items + b;
        const known = rowOf.get(key);
        if (known === undefined) {
          rowOf.set(key, from.length);
          from.push(a);
          to.push(b);
          many.push(is > 1 ? 1 : 0);
          kind.push(is);
          first.push(edge);
        } else {
          // An edge that is alive is stronger than a ghost, an old one than a new one.
          many[known] += is > 1 ? 1 : 0;
          if (kind[known] === 1 || (kind[known] === 3 && is === 2)) [kind[known], first[known]] = [is, edge];
        }
      }
      this.addOwners(from, to, many, kind, first);
      kind.forEach((is, at) => {
        if (is === 1 && this.isFaded(from[at])) kind[at] = 0;
      });
      this.edges = {
        count: from.length,
        from: Int32Array.from(from),
        to: Int32Array.from(to),
        many: Int32Array.from(many),
        kind: Uint8Array.from(kind),
        first: Int32Array.from(first),
      };
      this.byBox = null;
      this.routes = new sv.Routes(this);
    }

    /** A subgraph is tied to the node that holds it (kind 4). */
    addOwners(from, to, many, kind, first) {
      const { model, rep } = this;
      for (let group = 0; group < model.g; group++) {
        const owner = model.groupOwner[group];
        if (owner < 0 || model.strings[model.groupKind[group]] !== "subgraph") continue;
        const [a, b] = [rep[owner], rep[model.n + group]];
        if (a === b || !this.shown[a] || !this.shown[b]) continue;
        // Its results flow to the node, so it may stand above.
        const isAbove = this.y[b] < this.y[a];
        from.push(isAbove ? b : a);
        to.push(isAbove ? a : b);
        many.push(1);
        kind.push(4);
        first.push(-1);
      }
    }

    /** Return the edges of the scene that begin or end at a box. */
    edgesAt(item) {
      if (!this.byBox) {
        const items = this.model.n + this.model.g;
        this.byBox = [sv.bucket(this.edges.from, items), sv.bucket(this.edges.to, items)];
      }
      const [[outStart, out], [inStart, into]] = this.byBox;
      return {
        out: out.subarray(outStart[item], outStart[item + 1]),
        into: into.subarray(inStart[item], inStart[item + 1]),
      };
    }

    /** Return the rectangle of an item: [left, top, right, bottom]. */
    rectangle(item) {
      const { layout } = this;
      return [this.x[item], this.y[item], this.x[item] + layout.width[item], this.y[item] + layout.height[item]];
    }

    /** Return the item at a place in the plane, -1 for none; of frames the titles only, if `titles`. */
    at(x, y, titles) {
      const found = (this.found ??= []);
      const count = this.boxes.query(x, y, x, y, found);
      if (count) return this.leaves[found[count - 1]];
      for (let k = this.frames.length - 1; k >= 0; k--) {
        const item = this.frames[k];
        const [left, top, right, bottom] = this.rectangle(item);
        if (x >= left && x <= right && y >= top && y <= (titles ? top + sv.HEADER : bottom)) return item;
      }
      return -1;
    }
  };
})(surgeryViewer);
