// A small picture of the whole graph, with the part that is visible.
(function (sv) {
  "use strict";

  sv.Minimap = class {
    constructor(view) {
      this.view = view;
      this.canvas = sv.element("canvas", { class: "sv-minimap", "aria-hidden": "true" });
      this.context = this.canvas.getContext("2d");
      this.picture = document.createElement("canvas");
      this.canvas.addEventListener("pointerdown", (event) => this.grab(event));
      this.canvas.addEventListener("pointermove", (event) => event.buttons && this.grab(event));
      this.canvas.addEventListener("wheel", (event) => event.preventDefault(), { passive: false });
    }

    grab(event) {
      const { camera } = this.view;
      this.canvas.setPointerCapture(event.pointerId);
      const box = this.canvas.getBoundingClientRect();
      camera.set(
        (event.clientX - box.left - this.x) / this.scale,
        (event.clientY - box.top - this.y) / this.scale,
        camera.k,
      );
    }

    /** Draw the boxes anew, after the scene changed. */
    rebuild() {
      const { scene, painter } = this.view;
      this.width = this.canvas.clientWidth || 160;
      this.height = this.canvas.clientHeight || 120;
      const [w, h] = [this.width, this.height];
      for (const canvas of [this.canvas, this.picture]) {
        canvas.width = w * 2;
        canvas.height = h * 2;
      }
      this.scale = Math.min((w - 12) / Math.max(1, scene.width), (h - 12) / Math.max(1, scene.height));
      this.x = (w - scene.width * this.scale) / 2;
      this.y = (h - scene.height * this.scale) / 2;
      const context = this.picture.getContext("2d");
      const image = context.createImageData(w * 2, h * 2);
      const pixels = new Uint32Array(image.data.buffer);
      painter.scene = scene;
      painter.families = sv.families(scene.model);
      for (const item of scene.leaves) this.dot(pixels, item, painter.dustColor(item));
      context.putImageData(image, 0, 0);
    }

    dot(pixels, item, color) {
      const { scene } = this.view;
      const [left, top, right, bottom] = scene.rectangle(item);
      const place = (value, shift, limit) =>
        Math.max(0, Math.min(limit - 1, Math.round((value * this.scale + shift) * 2)));
      const [w, h] = [this.picture.width, this.picture.height];
      const [x0, y0, x1, y1] = [
        place(left, this.x, w),
        place(top, this.y, h),
        place(right, this.x, w),
        place(bottom, this.y, h),
      ];
      for (let y = y0; y <= Math.max(y0, y1 - 1); y++) pixels.fill(color, y * w + x0, y * w + Math.max(x0 + 1, x1));
    }

    /** Draw the picture and the visible part; nothing where all of it is visible. */
    draw() {
      const { scene, camera, palette } = this.view;
      const [left, top, right, bottom] = camera.view();
      const isWhole = left <= 0 && top <= 0 && right >= scene.width && bottom >= scene.height;
      this.canvas.classList.toggle("sv-off", isWhole);
      if (isWhole || !this.scale) return;
      const { context, width, height } = this;
      context.setTransform(2, 0, 0, 2, 0, 0);
      context.clearRect(0, 0, width, height);
      context.drawImage(this.picture, 0, 0, width, height);
      context.strokeStyle = palette.accent;
      context.lineWidth = 1.5;
      const clamp = (value, high) => Math.max(1, Math.min(high - 1, value));
      const [x0, x1] = [left, right].map((x) => clamp(x * this.scale + this.x, width));
      const [y0, y1] = [top, bottom].map((y) => clamp(y * this.scale + this.y, height));
      context.strokeRect(x0, y0, Math.max(2, x1 - x0), Math.max(2, y1 - y0));
    }
  };
})(surgeryViewer);
