// A grid over boxes in the plane, to find what is visible and what is under the pointer.
(function (sv) {
  "use strict";

  // What covers more cells than this is kept in a list that each question looks through.
  const MANY_CELLS = 24;

  sv.Grid = class {
    /** Sort `count` boxes (arrays of left, top, right, bottom) into cells of about four boxes. */
    constructor(left, top, right, bottom, count) {
      Object.assign(this, { left, top, right, bottom, count });
      this.seen = new Int32Array(count);
      this.stamp = 0;
      this.measure();
      this.fill();
    }

    measure() {
      let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
      for (let i = 0; i < this.count; i++) {
        x0 = Math.min(x0, this.left[i]);
        y0 = Math.min(y0, this.top[i]);
        x1 = Math.max(x1, this.right[i]);
        y1 = Math.max(y1, this.bottom[i]);
      }
      if (!this.count) x0 = y0 = x1 = y1 = 0;
      const area = Math.max(1, x1 - x0) * Math.max(1, y1 - y0);
      this.cell = Math.max(128, Math.sqrt((area * 4) / Math.max(1, this.count)));
      this.x0 = x0;
      this.y0 = y0;
      this.columns = Math.floor((x1 - x0) / this.cell) + 1;
      this.lines = Math.floor((y1 - y0) / this.cell) + 1;
    }

    column(x) {
      return Math.max(0, Math.min(this.columns - 1, Math.floor((x - this.x0) / this.cell)));
    }

    line(y) {
      return Math.max(0, Math.min(this.lines - 1, Math.floor((y - this.y0) / this.cell)));
    }

    fill() {
      const start = new Int32Array(this.columns * this.lines + 1);
      const large = [];
      this.eachCell((cell) => start[cell + 1]++, large);
      for (let cell = 0; cell < start.length - 1; cell++) start[cell + 1] += start[cell];
      const items = new Int32Array(start[start.length - 1]);
      const next = start.slice();
      this.eachCell((cell, i) => (items[next[cell]++] = i), []);
      Object.assign(this, { start, items, large: Int32Array.from(large) });
    }

    eachCell(put, large) {
      for (let i = 0; i < this.count; i++) {
        const [c0, c1] = [this.column(this.left[i]), this.column(this.right[i])];
        const [l0, l1] = [this.line(this.top[i]), this.line(this.bottom[i])];
        if ((c1 - c0 + 1) * (l1 - l0 + 1) > MANY_CELLS) {
          large.push(i);
          continue;
        }
        for (let l = l0; l <= l1; l++) for (let c = c0; c <= c1; c++) put(l * this.columns + c, i);
      }
    }

    touches(i, x0, y0, x1, y1) {
      return this.left[i] <= x1 && this.right[i] >= x0 && this.top[i] <= y1 && this.bottom[i] >= y0;
    }

    /** Write the boxes that touch a rectangle into `found` and return how many they are. */
    query(x0, y0, x1, y1, found) {
      const stamp = ++this.stamp;
      let count = 0;
      for (const i of this.large) if (this.touches(i, x0, y0, x1, y1)) found[count++] = i;
      const [c0, c1, l0, l1] = [this.column(x0), this.column(x1), this.line(y0), this.line(y1)];
      for (let l = l0; l <= l1; l++) {
        for (let c = c0; c <= c1; c++) {
          const cell = l * this.columns + c;
          for (let at = this.start[cell]; at < this.start[cell + 1]; at++) {
            const i = this.items[at];
            if (this.seen[i] === stamp) continue;
            this.seen[i] = stamp;
            if (this.touches(i, x0, y0, x1, y1)) found[count++] = i;
          }
        }
      }
      return count;
    }
  };
})(surgeryViewer);
