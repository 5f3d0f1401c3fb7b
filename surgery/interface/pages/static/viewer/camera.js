// What part of the plane is visible, and how it moves.
(function (sv) {
  "use strict";

  const LEAST = 1e-5;
  const MOST = 4;

  sv.Camera = class {
    /** `moved` is called after each change. */
    constructor(moved) {
      Object.assign(this, { x: 0, y: 0, k: 1, width: 1, height: 1, moved, flight: null });
    }

    resize(width, height) {
      this.width = Math.max(1, width);
      this.height = Math.max(1, height);
    }

    /** Return the visible rectangle: [left, top, right, bottom]. */
    view(margin = 0) {
      const [w, h] = [(this.width / 2 + margin) / this.k, (this.height / 2 + margin) / this.k];
      return [this.x - w, this.y - h, this.x + w, this.y + h];
    }

    toPlane(px, py) {
      return [(px - this.width / 2) / this.k + this.x, (py - this.height / 2) / this.k + this.y];
    }

    toScreen(x, y) {
      return [(x - this.x) * this.k + this.width / 2, (y - this.y) * this.k + this.height / 2];
    }

    set(x, y, k) {
      this.flight = null;
      Object.assign(this, { x, y, k: Math.max(LEAST, Math.min(MOST, k)) });
      this.moved();
    }

    pan(dx, dy) {
      this.set(this.x - dx / this.k, this.y - dy / this.k, this.k);
    }

    /** Zoom by a factor with a place of the screen held still. */
    zoom(factor, px = this.width / 2, py = this.height / 2) {
      const [x, y] = this.toPlane(px, py);
      const k = Math.max(LEAST, Math.min(MOST, this.k * factor));
      this.set(x - (px - this.width / 2) / k, y - (py - this.height / 2) / k, k);
    }

    /** Return the place that shows a rectangle whole, at most `most` times as large. */
    placeFor([left, top, right, bottom], most = 1, margin = 28) {
      const k = Math.min(
        most,
        (this.width - 2 * margin) / Math.max(1, right - left),
        (this.height - 2 * margin) / Math.max(1, bottom - top),
      );
      return [(left + right) / 2, (top + bottom) / 2, Math.max(LEAST, k)];
    }

    /** Move to a place: at once, or as a short flight that `step` is to drive. */
    fly(place, isAtOnce) {
      if (isAtOnce || !place.every(Number.isFinite)) return this.set(...place);
      this.flight = { from: [this.x, this.y, this.k], to: place, start: performance.now(), length: 240 };
      this.moved();
      return undefined;
    }

    /** Take the next step of a flight; return whether there is another one. */
    step(now) {
      if (!this.flight) return false;
      const { from, to, start, length } = this.flight;
      const t = Math.min(1, (now - start) / length);
      const ease = 1 - (1 - t) ** 3;
      // Zoom is felt as a factor; the middle follows so that the target grows where it is.
      const k = from[2] * (to[2] / from[2]) ** ease;
      const share = Math.abs(to[2] - from[2]) < 1e-9 ? ease : (1 / from[2] - 1 / k) / (1 / from[2] - 1 / to[2]);
      this.x = from[0] + (to[0] - from[0]) * share;
      this.y = from[1] + (to[1] - from[1]) * share;
      this.k = k;
      if (t >= 1) {
        [this.x, this.y, this.k] = to;
        this.flight = null;
      }
      return true;
    }
  };
})(surgeryViewer);
