// Draws the scene on a canvas: only what is visible, in batches of one style, with as much detail as can be read.
(function (sv) {
  "use strict";

  // Below this size of a node's height in px boxes are drawn as pixels, without edges of their own.
  const DUST = 3.2;
  const MANY_BOXES = 4500;
  const MANY_EDGES = 5000;
  const ARROW = 5.5;

  const KINDS = 5;
  // From this zoom on there is room for the name of a node, too.
  const TWO_LINES = 1.75;
  // The width of text that is set closer, and of bold text, as shares of the plain width.
  const NARROWEST = 0.8;
  const BOLD = 1.13;
  // Letters of fewer px are not crossed out.
  const LEAST_CROSSED = (sv.LEAST_CROSSED = 10);

  sv.Painter = class {
    constructor(canvas) {
      this.canvas = canvas;
      this.context = canvas.getContext("2d", { alpha: false });
      this.found = [];
      this.foundEdges = [];
      this.byStyle = new Int32Array(0);
      this.dust = null;
      this.letters = new Map();
      this.ratio = 1;
      this.lit = new Set();
      // The width and height of what stands on the canvas at the top left.
      this.covered = [0, 0];
    }

    resize(width, height) {
      this.ratio = Math.min(2, window.devicePixelRatio || 1);
      this.canvas.width = Math.round(width * this.ratio);
      this.canvas.height = Math.round(height * this.ratio);
    }

    setPalette(palette) {
      this.palette = palette;
      this.letters.clear();
      this.hatch = null;
      this.pixels = palette.families.map((family) => sv.pixel(family.strong));
    }

    /** Draw the scene as the camera sees it. `view` has: selected, hovered, focusVisible. */
    draw(scene, camera, view) {
      const { context } = this;
      Object.assign(this, { scene, camera, view, k: camera.k });
      this.ox = camera.width / 2 - camera.x * camera.k;
      this.oy = camera.height / 2 - camera.y * camera.k;
      this.families = sv.families(scene.model);
      context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      context.globalAlpha = 1;
      context.fillStyle = this.palette.bg;
      context.fillRect(0, 0, camera.width, camera.height);
      this.count = this.visibleBoxes();
      this.isDust = sv.NODE_HEIGHT * this.k < DUST || this.count > MANY_BOXES;
      this.drawFrames();
      this.drawEdges();
      if (this.isDust) this.drawDust();
      else this.drawBoxes();
      this.drawFrameTitles();
      sv.drawSelection(this);
    }

    visibleBoxes() {
      const { scene, found } = this;
      if (scene.tween) {
        for (let at = 0; at < scene.leaves.length; at++) found[at] = at;
        return scene.leaves.length;
      }
      return scene.boxes.query(...this.camera.view(40), found);
    }

    /** Set left, top, right, bottom of an item on the screen. */
    locate(item) {
      const { scene, k } = this;
      let [x, y, w, h] = [scene.x[item], scene.y[item], scene.layout.width[item], scene.layout.height[item]];
      const { tween } = scene;
      if (tween) {
        const t = tween.t;
        x = tween.x[item] + (x - tween.x[item]) * t;
        y = tween.y[item] + (y - tween.y[item]) * t;
        w = tween.w[item] + (w - tween.w[item]) * t;
        h = tween.h[item] + (h - tween.h[item]) * t;
      }
      this.left = x * k + this.ox;
      this.top = y * k + this.oy;
      this.right = this.left + w * k;
      this.bottom = this.top + h * k;
    }

    isOutside() {
      return this.right < 0 || this.bottom < 0 || this.left > this.camera.width || this.top > this.camera.height;
    }

    box(radius) {
      const [w, h] = [this.right - this.left, this.bottom - this.top];
      if (radius * 2 > 1.5) this.context.roundRect(this.left, this.top, w, h, Math.min(radius, w / 2, h / 2));
      else this.context.rect(this.left, this.top, w, h);
    }

    drawFrames() {
      const { context, palette, scene } = this;
      const n = scene.model.n;
      for (const item of scene.frames) {
        this.locate(item);
        if (this.isOutside()) continue;
        const isGhost = scene.status[item] === sv.REMOVED;
        context.beginPath();
        this.box(10 * Math.min(1, this.k));
        context.fillStyle = scene.model.depth[item - n] % 2 ? palette.bg : palette.surface2;
        context.globalAlpha = 0.6;
        context.fill();
        context.globalAlpha = 1;
        context.strokeStyle = isGhost ? palette.removed : palette.line;
        context.lineWidth = 1;
        context.setLineDash(isGhost ? [4, 3] : []);
        context.stroke();
      }
      context.setLineDash([]);
    }

    drawFrameTitles() {
      const { context, palette, scene } = this;
      const size = Math.max(10.5, Math.min(14, 13 * this.k));
      const header = Math.min(sv.HEADER * this.k, sv.HEADER);
      if (header < 9) return;
      context.font = `600 ${size}px ${palette.sans}`;
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.lineJoin = "round";
      context.lineWidth = 4;
      context.strokeStyle = palette.bg;
      context.fillStyle = palette.muted;
      for (const item of scene.frames) {
        this.locate(item);
        if (this.isOutside() || this.right - this.left < 60) continue;
        const y = this.top + header / 2;
        // What stands on the canvas at the top left must not hide a part of a title.
        const covered = y - size < this.covered[1] ? this.covered[0] : 0;
        const left = Math.max(this.left, covered) + 8;
        const text = this.fit(scene.model.label(item) + sv.timesOf(scene, item), this.right - left - 24, size, true);
        context.strokeText(text, left + 16, y);
        context.fillText(text, left + 16, y);
        this.chevron(left + 5, y, 4, true);
      }
    }

    chevron(x, y, size, isOpen) {
      const { context } = this;
      context.beginPath();
      if (isOpen) {
        context.moveTo(x - size, y - size / 2);
        context.lineTo(x + size, y - size / 2);
        context.lineTo(x, y + size * 0.7);
      } else {
        context.moveTo(x - size / 2, y - size);
        context.lineTo(x - size / 2, y + size);
        context.lineTo(x + size * 0.7, y);
      }
      context.fill();
    }

    // Edges: solid alive, dashed removed (faint from removed constants), thick new, dotted to the subgraphs of a node.
    drawEdges() {
      const { scene, foundEdges, context, palette } = this;
      const { edges, routes } = scene;
      if (scene.tween) context.globalAlpha = Math.max(0, 2 * scene.tween.t - 1);
      const alpha = context.globalAlpha;
      const count = routes.grid.query(...this.camera.view(20), foundEdges);
      const stride = count > MANY_EDGES ? Math.ceil(count / MANY_EDGES) : 1;
      const styles = this.edgeStyles();
      for (let kind = 0; kind < KINDS; kind++) {
        const style = styles[kind];
        for (let thick = 0; thick < 2; thick++) {
          context.beginPath();
          let any = false;
          for (let at = 0; at < count; at += stride) {
            const edge = foundEdges[at];
            if (edges.kind[edge] !== kind || (edges.many[edge] > 2 ? 1 : 0) !== thick) continue;
            any = this.trace(edge) || any;
          }
          if (!any) continue;
          context.strokeStyle = style.color;
          context.globalAlpha = alpha * (stride > 1 || this.isDust ? 0.35 : style.alpha);
          context.lineWidth = (thick ? 2 : 1.15) * style.width * Math.max(0.6, Math.min(1.3, this.k));
          context.setLineDash(style.dash);
          context.stroke();
        }
      }
      context.setLineDash([]);
      context.globalAlpha = alpha;
      if (this.k >= 0.35 && stride === 1) this.drawArrows(count, styles);
      context.globalAlpha = 1;
      if (this.k >= 1.05 && stride === 1) sv.drawTypes(this, count);
      context.fillStyle = palette.text;
    }

    edgeStyles() {
      const { palette } = this;
      const dim = this.view.selected >= 0 ? 0.55 : 1;
      return (this.styles = [
        { color: palette.removed, dash: [3, 4], width: 0.85, alpha: 0.42 * sv.FADED * dim },
        { color: palette.removed, dash: [3, 4], width: 0.85, alpha: 0.42 * dim },
        { color: palette.edge, dash: [], width: 1, alpha: dim },
        { color: palette.added, dash: [], width: 1.5, alpha: dim },
        { color: palette.muted, dash: [1.5, 4], width: 1, alpha: dim },
      ]);
    }

    /** Add an edge to the path of the context; return false where it is too short to be seen. */
    trace(edge) {
      const { context, k, ox, oy } = this;
      const isFar = k < 0.12;
      const path =
        isFar && !this.scene.routes.paths[edge] ? this.scene.routes.straight(edge) : this.scene.routes.path(edge);
      const last = path.length - 2;
      let x = path[0] * k + ox;
      let y = path[1] * k + oy;
      const [endX, endY] = [path[last] * k + ox, path[last + 1] * k + oy];
      if (isFar && Math.abs(endX - x) + Math.abs(endY - y) < 2) return false;
      context.moveTo(x, y);
      for (let at = 2; at <= last; at += 2) {
        const nextX = path[at] * k + ox;
        const nextY = path[at + 1] * k + oy;
        if (isFar || Math.abs(nextX - x) < 0.5) context.lineTo(nextX, nextY);
        else {
          const bend = nextY > y ? (nextY - y) * 0.5 : Math.max(40 * k, (y - nextY) * 0.4);
          context.bezierCurveTo(x, y + bend, nextX, nextY - bend, nextX, nextY);
        }
        x = nextX;
        y = nextY;
      }
      return true;
    }

    drawArrows(count, styles) {
      const { context, scene, foundEdges } = this;
      for (let kind = 0; kind < KINDS - 1; kind++) {
        context.beginPath();
        for (let at = 0; at < count; at++) {
          if (scene.edges.kind[foundEdges[at]] === kind) this.arrow(foundEdges[at], 1);
        }
        context.fillStyle = styles[kind].color;
        context.globalAlpha = styles[kind].alpha;
        context.fill();
      }
      context.globalAlpha = 1;
    }

    arrow(edge, scale) {
      const { context, k } = this;
      const path = this.scene.routes.path(edge);
      const x = path[path.length - 2] * k + this.ox;
      const y = path[path.length - 1] * k + this.oy;
      const size = ARROW * scale * Math.min(1.2, Math.max(0.6, k));
      context.moveTo(x - size * 0.6, y - size);
      context.lineTo(x + size * 0.6, y - size);
      context.lineTo(x, y);
    }

    /** Draw boxes that are too small for edges as pixels. */
    drawDust() {
      const { camera, ratio, scene, found } = this;
      const [width, height] = [Math.ceil(camera.width * ratio), Math.ceil(camera.height * ratio)];
      if (!this.dust || this.dust.width !== width || this.dust.height !== height) this.dust = dustOf(width, height);
      const { pixels, image, context, canvas } = this.dust;
      pixels.fill(0);
      for (let at = 0; at < this.count; at++) {
        const item = scene.leaves[found[at]];
        this.locate(item);
        const x0 = Math.max(0, Math.floor(this.left * ratio));
        const y0 = Math.max(0, Math.floor(this.top * ratio));
        const x1 = Math.min(width, Math.max(x0 + 1, Math.round(this.right * ratio)));
        const y1 = Math.min(height, Math.max(y0 + 1, Math.round(this.bottom * ratio)));
        const color = this.dustColor(item);
        for (let y = y0; y < y1; y++) pixels.fill(color, y * width + x0, y * width + x1);
      }
      context.putImageData(image, 0, 0);
      this.context.drawImage(canvas, 0, 0, width / ratio, height / ratio);
    }

    dustColor(item) {
      const { palette, scene } = this;
      const status = scene.status[item];
      if (status === sv.ADDED) return sv.pixel(palette.added);
      if (status === sv.REMOVED) return sv.pixel(palette.removed);
      if (status === sv.ALTERED) return sv.pixel(palette.changed);
      return item < scene.model.n ? this.pixels[this.families[item]] : sv.pixel(palette.muted);
    }

    /** Draw boxes, in batches of one fill each: families of nodes, then groups; marks and texts at the end. */
    drawBoxes() {
      const { scene, found, count } = this;
      const batches = sv.FAMILIES.length + 1;
      if (this.byStyle.length < count) this.byStyle = new Int32Array(2 * count);
      const start = (this.starts ??= new Int32Array(batches + 2)).fill(0);
      const style = (item) => (item < scene.model.n ? this.families[item] : batches - 1);
      for (let at = 0; at < count; at++) start[style(scene.leaves[found[at]]) + 2]++;
      for (let k = 2; k < start.length; k++) start[k] += start[k - 1];
      for (let at = 0; at < count; at++) {
        const item = scene.leaves[found[at]];
        this.byStyle[start[style(item) + 1]++] = item;
      }
      for (let k = 0; k < batches; k++) this.drawBatch(k, start[k], start[k + 1]);
      sv.drawMarks(this, count);
      this.drawLabels(count);
    }

    drawBatch(style, first, end) {
      if (first === end) return;
      const { context, palette, k } = this;
      const isGroup = style === sv.FAMILIES.length;
      const family = isGroup
        ? { fill: palette.surface, line: palette.line, strong: palette.muted }
        : palette.families[style];
      if (isGroup) sv.drawStacks(this, first, end);
      context.beginPath();
      for (let at = first; at < end; at++) {
        this.locate(this.byStyle[at]);
        this.box((style === sv.PORT_FAMILY ? 12 : isGroup ? 8 : 5) * k);
      }
      const isSmall = k < 0.3;
      context.fillStyle = isSmall && !isGroup ? family.strong : family.fill;
      context.fill();
      if (isSmall && !isGroup) return;
      context.strokeStyle = family.line;
      context.lineWidth = isGroup ? 1.25 : 1;
      context.stroke();
      if (isGroup || style === sv.PORT_FAMILY || palette.isForced) return;
      context.beginPath();
      for (let at = first; at < end; at++) {
        this.locate(this.byStyle[at]);
        context.rect(this.left + (k < 0.75 ? 0.5 : 2 * k), this.top + 5 * k, 2.2 * k, this.bottom - this.top - 10 * k);
      }
      context.fillStyle = family.strong;
      context.fill();
    }

    drawLabels(count) {
      const { context, palette, scene, k } = this;
      const nodes = sv.NODE_HEIGHT * k >= 10;
      const groups = sv.GROUP_HEIGHT * k >= 10;
      if (!groups) return;
      context.textAlign = "center";
      context.textBaseline = "middle";
      const size = k >= TWO_LINES ? 9.5 * k : Math.max(8, 11.5 * k);
      if (nodes) {
        context.font = `${size}px ${palette.sans}`;
        context.fillStyle = palette.text;
        for (let at = 0; at < count; at++) {
          const item = this.byStyle[at];
          if (item >= scene.model.n || scene.status[item] === sv.REMOVED) continue;
          this.locate(item);
          this.label(item, size, 5.5 * k);
        }
        context.fillStyle = palette.removed;
        for (let at = 0; at < count; at++) {
          const item = this.byStyle[at];
          if (item >= scene.model.n || scene.status[item] !== sv.REMOVED) continue;
          this.locate(item);
          context.globalAlpha = scene.isFaded(item) ? sv.FADED : 1;
          this.label(item, size, 5.5 * k);
          // A line through small letters hides them; the dashes and hatching of the box are enough.
          if (size < LEAST_CROSSED) continue;
          const lift = k >= TWO_LINES ? 4.5 * k : 0;
          context.fillRect(
            this.left + 8 * k,
            (this.top + this.bottom) / 2 - lift,
            this.right - this.left - 16 * k,
            Math.max(1, k),
          );
        }
        context.globalAlpha = 1;
      }
      if (k >= TWO_LINES) this.drawNames(count);
      for (let at = 0; at < count; at++)
        if (this.byStyle[at] >= scene.model.n) sv.drawGroupLabel(this, this.byStyle[at]);
    }

    label(item, size, margin) {
      const room = this.right - this.left - margin;
      const lift = this.k >= TWO_LINES && !this.scene.model.isPort(item) ? 4.5 * this.k : 0;
      const x = (this.left + this.right) / 2 + this.k;
      this.write(this.scene.model.label(item), x, (this.top + this.bottom) / 2 + size * 0.06 - lift, room, size, false);
    }

    /**
     * Write as much of a text as fits into `room` px, and return its width. Letters of the least size are wider than
     * their boxes: they are set closer before any is left out.
     */
    write(text, x, y, room, size, isBold) {
      const shown = this.fit(text, room / NARROWEST, size, isBold);
      const width = this.measure(shown, size) * (isBold ? BOLD : 1);
      this.context.fillText(shown, x, y, width > room ? room : undefined);
      return Math.min(width, room);
    }

    /** Draw the names of nodes below their operators. */
    drawNames(count) {
      const { context, palette, scene, k } = this;
      const { model } = scene;
      const size = 5.8 * k;
      const names = (this.names ??= new Map());
      context.font = `${size}px ${palette.sans}`;
      context.fillStyle = palette.muted;
      for (let at = 0; at < count; at++) {
        const item = this.byStyle[at];
        if (item >= model.n || model.isPort(item)) continue;
        let name = names.get(model.name[item]);
        if (name === undefined) names.set(model.name[item], (name = sv.cut(model.strings[model.name[item]], 64)));
        this.locate(item);
        const room = this.right - this.left - 10 * k;
        // The end of a name tells it from others.
        let shown = name;
        for (let cut = 2; shown && this.measure(shown, size) > room; cut += 2)
          shown = cut < name.length ? "…" + name.slice(cut) : "";
        context.fillText(shown, (this.left + this.right) / 2 + k, (this.top + this.bottom) / 2 + 5 * k);
      }
    }

    /** Return the width of a text, from widths of letters that are measured once. */
    measure(text, size) {
      let width = 0;
      for (const letter of text) {
        let known = this.letters.get(letter);
        if (known === undefined) {
          const { context } = this;
          const font = context.font;
          context.font = `100px ${this.palette.sans}`;
          known = context.measureText(letter).width / 100;
          context.font = font;
          this.letters.set(letter, known);
        }
        width += known;
      }
      return width * size;
    }

    /** Return as much of a text as fits into `width` px. */
    fit(text, width, size, isBold) {
      const scale = isBold ? BOLD : 1;
      if (this.measure(text, size) * scale <= width) return text;
      let low = 0;
      let high = text.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.measure(text.slice(0, middle) + "…", size) * scale <= width) low = middle;
        else high = middle - 1;
      }
      return low ? text.slice(0, low) + "…" : "";
    }
  };

  function dustOf(width, height) {
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    return { width, height, canvas, context, image, pixels: new Uint32Array(image.data.buffer) };
  }
})(surgeryViewer);
