// The way of each edge: out of the frames it begins in, through gaps between boxes, into the frames it ends in.
(function (sv) {
  "use strict";

  // An edge passes this far from a box, and looks for a gap in at most so many rows.
  const CLEARANCE = 10;
  const ROWS = 160;
  // Beyond this an edge is routed when it is first drawn, where it can be seen.
  const EAGER = 4000;

  sv.Routes = class {
    constructor(scene) {
      this.scene = scene;
      this.paths = new Array(scene.edges.count).fill(null);
      this.slots = new Map();
      this.given = given(scene.model);
      this.index();
    }

    /** Sort edges into a grid by what they may cover. */
    index() {
      const { edges } = this.scene;
      const [left, top, right, bottom] = [0, 1, 2, 3].map(() => new Float64Array(edges.count));
      const isEager = edges.count <= EAGER;
      for (let edge = 0; edge < edges.count; edge++) {
        const path = isEager ? this.path(edge) : this.straight(edge);
        let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
        for (let k = 0; k < path.length; k += 2) {
          x0 = Math.min(x0, path[k]);
          x1 = Math.max(x1, path[k]);
          y0 = Math.min(y0, path[k + 1]);
          y1 = Math.max(y1, path[k + 1]);
        }
        [left[edge], top[edge], right[edge], bottom[edge]] = [x0, y0, x1, y1];
      }
      this.grid = new sv.Grid(left, top, right, bottom, edges.count);
    }

    straight(edge) {
      const { edges, x, y, layout } = this.scene;
      const [a, b] = [edges.from[edge], edges.to[edge]];
      return [x[a] + layout.width[a] / 2, y[a] + layout.height[a], x[b] + layout.width[b] / 2, y[b]];
    }

    /** Return the points of an edge: x, y, x, y, ... */
    path(edge) {
      return (this.paths[edge] ??= this.find(edge));
    }

    /** Return where the edges of a box begin or end: they are spread over its side in the order of their other ends. */
    slot(item, edge, isEnd) {
      const { scene } = this;
      const { x, layout } = scene;
      const center = x[item] + layout.width[item] / 2;
      // The edges of one output begin at one point.
      if (!isEnd && !scene.model.isGroup(item)) return center;
      const key = 2 * item + (isEnd ? 1 : 0);
      let slots = this.slots.get(key);
      if (!slots) this.slots.set(key, (slots = this.spread(item, isEnd)));
      return center + (slots.get(edge) || 0);
    }

    spread(item, isEnd) {
      const { scene } = this;
      const { edges, x, layout } = scene;
      const own = Array.from(isEnd ? scene.edgesAt(item).into : scene.edgesAt(item).out);
      const far = (edge) => {
        const other = isEnd ? edges.from[edge] : edges.to[edge];
        return x[other] + layout.width[other] / 2;
      };
      own.sort((a, b) => far(a) - far(b) || a - b);
      const step = Math.min(14, (layout.width[item] - 20) / Math.max(1, own.length));
      return new Map(own.map((edge, k) => [edge, (k - (own.length - 1) / 2) * step]));
    }

    /** Return an item and the frames around it, from the inside out. */
    chain(item) {
      const { model } = this.scene;
      const items = [item];
      for (let room = model.roomOf(item); room > 0; room = model.roomOf(item)) items.push((item = model.n + room - 1));
      return items;
    }

    find(edge) {
      const { edges } = this.scene;
      const [a, b] = [edges.from[edge], edges.to[edge]];
      const [up, down] = [this.chain(a), this.chain(b)];
      while (up.length && down.length && up[up.length - 1] === down[down.length - 1]) {
        up.pop();
        down.pop();
      }
      const way = { x: this.slot(a, edge, false), goal: this.slot(b, edge, true), points: [] };
      if (!up.length) {
        // A frame to what is in it: in a repeat, from the instance before.
        way.points.push(this.within(a, way.goal), this.scene.y[a] + sv.HEADER - 8);
        this.descend(way, down);
        return way.points;
      }
      way.points.push(way.x, this.bottom(a));
      this.leave(way, up, down.length ? -1 : b);
      if (down.length) {
        this.cross(way, up[up.length - 1], down[down.length - 1]);
        this.arrive(way, down);
        this.descend(way, down);
      }
      return way.points;
    }

    bottom(item) {
      return this.scene.y[item] + this.scene.layout.height[item];
    }

    /** Go down to the lower edges of the frames around the first item; `last` is the frame where the edge ends, if any. */
    leave(way, up, last) {
      for (let k = 0; k < up.length; k++) {
        const frame = k + 1 < up.length ? up[k + 1] : last;
        if (frame < 0) return;
        const room = this.room(up[k]);
        this.clearRow(way, up[k], room);
        this.pass(way, room, this.scene.layout.row[up[k]] + 1, room.rows.top.length - 1, this.within(frame, way.goal));
        way.x = this.within(frame, way.x);
        way.points.push(way.x, this.bottom(frame));
      }
    }

    /** Pass the rows between two boxes of one room. */
    cross(way, a, b) {
      const { layout, model } = this.scene;
      const room = this.room(a);
      this.clearRow(way, a, room);
      const via = this.given.get(a * (model.n + model.g) + b);
      if (via !== undefined && !room.rows.isPushed) way.via = room.x + room.rows.shift + via;
      this.pass(way, room, layout.row[a] + 1, layout.row[b] - 1, via === undefined ? way.goal : (way.via ?? way.goal));
      way.via = undefined;
    }

    /** End at the upper edge of the outermost box of `down`, which is taken off. */
    arrive(way, down) {
      const item = down.pop();
      way.points.push(down.length ? this.within(item, way.goal) : way.goal, this.scene.y[item]);
    }

    /** Go down from the top of a room, and of the frames in it, to the innermost box of `down`. */
    descend(way, down) {
      while (down.length) {
        const item = down[down.length - 1];
        this.pass(way, this.room(item), 0, this.scene.layout.row[item] - 1, way.goal);
        this.arrive(way, down);
      }
    }

    /** Return a value in the width of a frame. */
    within(frame, x) {
      const [left, , right] = this.scene.rectangle(frame);
      return Math.max(left + 14, Math.min(right - 14, x));
    }

    /** Return the room of an item, and where it begins. */
    room(item) {
      const { model, layout } = this.scene;
      const index = model.roomOf(item);
      const [x, y] = index ? this.scene.insideOf(model.n + index - 1) : [0, 0];
      return { rows: layout.rows[index], x, y };
    }

    /** Go straight down to the lower end of the row where other boxes of it are taller. */
    clearRow(way, item, room) {
      const end = room.y + room.rows.bottom[this.scene.layout.row[item]];
      if (end - this.bottom(item) > 12) way.points.push(way.x, end);
    }

    /** Pass the rows `first` to `last` of a room in a gap near to `goal`. */
    pass(way, room, first, last, goal) {
      if (last < first) return;
      const x = way.via ?? this.channel(room, first, last, goal);
      way.points.push(x, room.y + room.rows.top[first] - 6, x, room.y + room.rows.bottom[last] + 6);
      way.x = x;
    }

    channel(room, first, last, goal) {
      if (last - first > ROWS) return goal;
      const left = this.slide(room, first, last, goal, -1);
      const right = this.slide(room, first, last, goal, 1);
      return goal - left <= right - goal ? left : right;
    }

    /** Move `x` to one side until nothing is in the way. */
    slide(room, first, last, x, side) {
      const { layout } = this.scene;
      for (let tries = 0, row = first; row <= last && tries < 4 * ROWS; tries++) {
        const hit = this.hit(room.rows, row, x - room.x);
        if (hit < 0) row++;
        else {
          x = room.x + layout.left[hit] + (side < 0 ? -CLEARANCE : layout.width[hit] + CLEARANCE) + side;
          row = first;
        }
      }
      return x;
    }

    /** Return the box of a row that is nearer than the clearance to `x` (in the room), -1 for none. */
    hit(rows, row, x) {
      const { layout, shown } = this.scene;
      let [low, high] = [rows.start[row], rows.start[row + 1]];
      while (low < high) {
        const middle = (low + high) >> 1;
        const item = rows.items[middle];
        if (layout.left[item] + layout.width[item] + CLEARANCE <= x) low = middle + 1;
        else high = middle;
      }
      if (low >= rows.start[row + 1]) return -1;
      const item = rows.items[low];
      return layout.left[item] - CLEARANCE < x && shown[item] ? item : -1;
    }
  };

  /** Return the ways that the layout in Python found around boxes: a map from pairs of items to x in the room. */
  function given(model) {
    if (model.given) return model.given;
    const found = (model.given = new Map());
    const routes = model.document.routes;
    if (!routes) return found;
    const item = (box) => (box >= 0 ? box : model.n - 2 - box);
    routes.from.forEach((box, k) => {
      if (routes.x[k] >= 0) found.set(item(box) * (model.n + model.g) + item(routes.to[k]), routes.x[k]);
    });
    return found;
  }
})(surgeryViewer);
