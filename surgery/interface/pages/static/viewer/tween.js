// The short way of boxes from where they were, when a group is opened or closed.
(function (sv) {
  "use strict";

  // Larger scenes jump.
  const MOST = 3000;
  const LENGTH = 220;

  sv.Tween = class {
    /** Remember where boxes are, before the scene changes; null where they are too many. */
    static of(scene) {
      return scene.leaves.length > MOST ? null : new sv.Tween(scene);
    }

    constructor(scene) {
      const { layout } = scene;
      this.scene = scene;
      [this.x, this.y] = [scene.x.slice(), scene.y.slice()];
      [this.w, this.h] = [layout.width.slice(), layout.height.slice()];
      [this.shown, this.rep] = [scene.shown.slice(), scene.rep.slice()];
      this.t = 0;
    }

    /** Move where boxes were, as the camera was moved. */
    shift(dx, dy) {
      for (let item = 0; item < this.x.length; item++) {
        this.x[item] += dx;
        this.y[item] += dy;
      }
    }

    /** Begin, after the scene changed: what is new comes out of the group that it was in. */
    start() {
      const { scene } = this;
      if (scene.leaves.length > MOST) return;
      for (const list of [scene.leaves, scene.frames])
        for (const item of list) if (!this.shown[item]) this.comeFrom(item);
      this.begin = performance.now();
      scene.tween = this;
    }

    comeFrom(item) {
      const { scene } = this;
      const from = this.rep[item];
      const isNew = !this.shown[from];
      this.x[item] = isNew ? scene.x[item] : this.x[from];
      this.y[item] = isNew ? scene.y[item] : this.y[from];
      this.w[item] = isNew ? scene.layout.width[item] : this.w[from];
      this.h[item] = isNew ? scene.layout.height[item] : this.h[from];
    }

    /** Take the step of this moment; return whether there was one. */
    step(now) {
      const t = Math.min(1, Math.max(0, (now - this.begin) / LENGTH));
      this.t = 1 - (1 - t) ** 3;
      if (t >= 1) this.scene.tween = null;
      return true;
    }
  };
})(surgeryViewer);
