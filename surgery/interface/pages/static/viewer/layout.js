// Where boxes stand: rows of rooms, pushed apart where a group is opened.
(function (sv) {
  "use strict";

  function textLength(text) {
    let length = 0;
    for (const _ of text) if (++length > 40) break;
    return length;
  }

  function widths(model) {
    const { n, g } = model;
    const made = new Float64Array(n + g);
    const known = new Map();
    for (let item = 0; item < n + g; item++) {
      const text = model.rawLabel(item);
      let length = known.get(text);
      if (length === undefined) known.set(text, (length = textLength(text)));
      made[item] =
        item < n ? Math.min(200, Math.max(48, 16 + 7 * length)) : Math.min(260, Math.max(96, 32 + 7 * length));
    }
    return made;
  }

  /** Put centres as near as possible (least squares) to `wanted`, in order, `gap[i]` apart from the one before. */
  function pushApart(wanted, gap, count, result) {
    // Without the gaps: the nearest non-decreasing sequence, by pooling neighbours that are in the wrong order.
    const mean = new Float64Array(count);
    const weight = new Int32Array(count);
    let blocks = 0;
    let offset = 0;
    for (let i = 0; i < count; i++) {
      offset += i ? gap[i] : 0;
      let value = wanted[i] - offset;
      let size = 1;
      while (blocks && mean[blocks - 1] > value) {
        blocks--;
        value = (value * size + mean[blocks] * weight[blocks]) / (size + weight[blocks]);
        size += weight[blocks];
      }
      mean[blocks] = value;
      weight[blocks++] = size;
    }
    offset = 0;
    for (let block = 0, i = 0; block < blocks; block++) {
      for (let k = 0; k < weight[block]; k++, i++) {
        offset += i ? gap[i] : 0;
        result[i] = mean[block] + offset;
      }
    }
  }

  // Coordinates of an item are those of its box, relative to the room it stands in: left, top, width, height.
  sv.Layout = class {
    constructor(model) {
      this.model = model;
      const items = model.n + model.g;
      const rooms = model.g + 1;
      this.closedWidth = widths(model);
      this.left = new Float64Array(items);
      this.top = new Float64Array(items);
      this.width = new Float64Array(items);
      this.height = new Float64Array(items);
      this.row = new Int32Array(items);
      this.roomWidth = new Float64Array(rooms);
      this.roomHeight = new Float64Array(rooms);
      // Rows of each room that was laid out: {start: [], items, top: [], bottom: []}.
      this.rows = new Array(rooms).fill(null);
      this.open = new Uint8Array(model.g);
      this.chosen = new Int32Array(model.g);
      this.sortItems();
    }

    /** Sort the items of each room by row, then by place in the row. */
    sortItems() {
      const { model } = this;
      const { n, g } = model;
      const [start, items] = sv.bucket(
        Int32Array.from({ length: n + g }, (_, item) => model.roomOf(item)),
        g + 1,
      );
      this.roomStart = start;
      this.roomItems = new Int32Array(items.length);
      const layer = (item) => (item < n ? model.layer[item] : model.groupLayer[item - n]);
      const order = (item) => (item < n ? model.order[item] : model.groupOrder[item - n]);
      let widest = 1;
      for (let item = 0; item < n + g; item++) widest = Math.max(widest, order(item) + 1);
      const keys = new Float64Array(items.length);
      for (let room = 0; room <= g; room++) {
        const [first, end] = [start[room], start[room + 1]];
        // Numbers are sorted natively: the place in the room is the last digit of the key.
        const count = end - first;
        for (let k = 0; k < count; k++) {
          const item = items[first + k];
          keys[k] = (Math.max(0, layer(item)) * widest + Math.max(0, order(item))) * count + k;
        }
        keys.subarray(0, count).sort();
        for (let k = 0; k < count; k++) this.roomItems[first + k] = items[first + (keys[k] % count)];
      }
    }

    layerOf(item) {
      const { model } = this;
      return item < model.n ? model.layer[item] : model.groupLayer[item - model.n];
    }

    centerOf(item) {
      const { model } = this;
      return item < model.n ? model.x[item] : model.groupX[item - model.n];
    }

    /** Return the items of a room that are drawn: all, or the chosen instance of a repeat. */
    itemsOf(room) {
      const all = this.roomItems.subarray(this.roomStart[room], this.roomStart[room + 1]);
      if (room === 0 || !this.model.isRepeat[room - 1]) return all;
      return all.filter((item) => this.isChosen(item));
    }

    /** Return whether an item is in the chosen instance, where it stands in a repeat. */
    isChosen(item) {
      const { model } = this;
      const room = model.roomOf(item);
      if (room === 0 || !model.isRepeat[room - 1] || item < model.n) return true;
      return model.groupInstance[item - model.n] === this.chosen[room - 1];
    }

    /** Lay out the rooms of opened groups from the inside out, and the top level. */
    layAll() {
      const inside = [];
      for (let group = 0; group < this.model.g; group++) if (this.open[group]) inside.push(group);
      inside.sort((a, b) => this.model.depth[b] - this.model.depth[a]);
      for (const group of inside) this.layRoom(group + 1);
      this.layRoom(0);
    }

    /** Lay out the room of a group and those around it, after it was opened or closed. */
    layUpFrom(group) {
      for (let at = group; at >= 0; at = this.model.parent[at]) if (this.open[at]) this.layRoom(at + 1);
      this.layRoom(0);
    }

    sizeItem(item) {
      const { n } = this.model;
      if (item >= n && this.open[item - n]) {
        this.width[item] = Math.max(
          this.closedWidth[item] + (this.model.isRepeat[item - n] ? 110 : 60),
          this.roomWidth[item - n + 1] + 2 * sv.PADDING,
        );
        this.height[item] = this.roomHeight[item - n + 1] + sv.HEADER + sv.PADDING;
        return true;
      }
      this.width[item] = this.closedWidth[item];
      this.height[item] = item < n ? sv.NODE_HEIGHT : sv.GROUP_HEIGHT;
      return false;
    }

    layRoom(room) {
      const items = this.itemsOf(room);
      const rows = { items, start: [], top: [], bottom: [], isPushed: false };
      let y = 0;
      for (let first = 0; first < items.length;) {
        const layer = this.layerOf(items[first]);
        let end = first;
        let height = 0;
        let hasOpen = false;
        for (; end < items.length && this.layerOf(items[end]) === layer; end++) {
          hasOpen = this.sizeItem(items[end]) || hasOpen;
          height = Math.max(height, this.height[items[end]]);
        }
        this.layRow(items.subarray(first, end), hasOpen, y, height, rows.start.length);
        rows.isPushed ||= hasOpen;
        rows.start.push(first);
        rows.top.push(y);
        rows.bottom.push(y + height);
        y += height + sv.ROW_GAP;
        first = end;
      }
      rows.start.push(items.length);
      this.rows[room] = rows;
      this.normalize(room, items, y - sv.ROW_GAP);
    }

    layRow(items, hasOpen, y, height, row) {
      const centers = Float64Array.from(items, (item) => this.centerOf(item));
      if (hasOpen) {
        const gaps = Float64Array.from(items, (item, k) =>
          k ? (this.width[item] + this.width[items[k - 1]]) / 2 + sv.BOX_GAP : 0,
        );
        pushApart(centers.slice(), gaps, items.length, centers);
      }
      items.forEach((item, k) => {
        this.left[item] = centers[k] - this.width[item] / 2;
        this.top[item] = hasOpen ? y : y + (height - this.height[item]) / 2;
        this.row[item] = row;
      });
    }

    /** Move a room so that its left edge is at 0. */
    normalize(room, items, height) {
      let low = Infinity;
      let high = -Infinity;
      for (const item of items) {
        low = Math.min(low, this.left[item]);
        high = Math.max(high, this.left[item] + this.width[item]);
      }
      if (!items.length) low = high = 0;
      for (const item of items) this.left[item] -= low;
      this.rows[room].shift = -low;
      this.roomWidth[room] = high - low;
      this.roomHeight[room] = Math.max(0, height);
    }
  };
})(surgeryViewer);
