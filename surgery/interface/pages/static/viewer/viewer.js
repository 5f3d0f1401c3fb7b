// The view: what is open, selected and chosen, and how that changes.
(function (sv) {
  "use strict";

  // A first picture is opened as far as its texts can still be read.
  const READABLE = 0.62;
  const FIRST_TRIES = 40;
  // A small graph is enlarged up to this zoom, so that it fills the view.
  const LARGEST_FIT = 1.5;

  sv.View = class {
    constructor(model, options) {
      this.model = model;
      this.options = options;
      this.layout = new sv.Layout(model);
      this.scene = new sv.Scene(model, this.layout);
      this.camera = new sv.Camera(() => this.moved());
      this.selected = -1;
      this.hovered = -1;
      this.lit = [];
      this.focusVisible = false;
      this.state = model.states.length - 1;
      this.isStep = false;
      this.firstOpen = [];
      this.frames = 0;
    }

    /** Take over the elements that `mount` made, and draw for the first time. */
    start(parts) {
      Object.assign(this, parts);
      this.scene.setState(this.state, this.since());
      this.loadPalette();
      this.resize();
      this.openFirst();
      this.scene.rebuild();
      this.minimap.rebuild();
      this.fit(true);
      this.address = new sv.Address(this);
      this.input = new sv.Input(this);
      this.timeline?.show();
      new ResizeObserver(() => this.resize()).observe(this.stage);
      const address = sv.parseAddress(location.hash);
      if (address && location.hash) this.address.read(address);
      this.paint(performance.now());
    }

    since() {
      return this.isStep ? Math.max(0, this.state - 1) : 0;
    }

    // The first picture

    /** Open groups, from the outside, as long as all of it stays readable. */
    openFirst() {
      const { layout, camera } = this;
      layout.layAll();
      const scale = () => camera.placeFor([0, 0, layout.roomWidth[0], layout.roomHeight[0]])[2];
      const rejected = new Set();
      for (let tries = 0; tries < FIRST_TRIES; tries++) {
        const [group, isOnly] = this.nextToOpen(rejected);
        if (group < 0) break;
        this.setOpen(group, true);
        layout.layUpFrom(group);
        if (scale() >= READABLE || (isOnly && layout.rows[group + 1].items.length < 400)) continue;
        this.setOpen(group, false);
        layout.layUpFrom(group);
        rejected.add(group);
      }
      this.firstOpen = Array.from(layout.open.keys()).filter((group) => layout.open[group]);
    }

    /** Return the closed group, in the outermost room that has one, with the most nodes, and whether it is all there is. */
    nextToOpen(rejected) {
      const { layout, model, scene } = this;
      const rooms = [0];
      for (let at = 0; at < rooms.length && at < 200; at++) {
        const items = layout.rows[rooms[at]].items;
        const groups = Array.from(items)
          .filter((item) => item >= model.n)
          .map((item) => item - model.n);
        rooms.push(...groups.filter((group) => layout.open[group]).map((group) => group + 1));
        // Where the largest group has to stay closed, more of the small ones would only take its room.
        if (groups.some((group) => rejected.has(group))) continue;
        const closed = groups.filter((group) => !layout.open[group] && scene.counts[4 * group] > 0);
        if (!closed.length) continue;
        const most = closed.reduce((a, b) => (scene.counts[4 * b] > scene.counts[4 * a] ? b : a));
        return [most, groups.length === 1 && items.length < 12];
      }
      return [-1, false];
    }

    /** Open or close a group; a repeat opens with the one group that its instance is. */
    setOpen(group, isOpen) {
      const { layout, model } = this;
      layout.open[group] = isOpen ? 1 : 0;
      if (!isOpen || !model.isRepeat[group]) return;
      const items = layout.itemsOf(group + 1);
      if (items.length === 1 && items[0] >= model.n) {
        layout.open[items[0] - model.n] = 1;
        layout.layRoom(items[0] - model.n + 1);
      }
    }

    // Drawing

    loadPalette() {
      this.palette = sv.palette(this.root);
      if (this.heat) this.palette.families = this.heat.tints(this.palette);
      this.painter.setPalette(this.palette);
      this.legend?.draw();
      if (this.scene.boxes) this.minimap.rebuild();
      this.timeline?.draw();
      this.invalidate();
    }

    /** Color nodes by figures: the class of each node, the names of classes and their colors; null for operators. */
    setHeat(heat) {
      this.heat = heat;
      this.model.families = heat ? heat.classes : null;
      this.loadPalette();
    }

    resize() {
      const { clientWidth: width, clientHeight: height } = this.stage;
      if (!width || !height || (width === this.camera.width && height === this.camera.height)) return;
      const isFirst = this.camera.width <= 1;
      this.camera.resize(width, height);
      this.painter.resize(width, height);
      if (this.isFitted && !isFirst) this.fit(true);
      this.timeline?.draw();
      // At once, for the canvas was cleared by its new size.
      if (!isFirst) this.paint(performance.now());
    }

    invalidate() {
      if (this.pending || !this.scene.boxes) return;
      this.pending = true;
      requestAnimationFrame((now) => this.paint(now));
    }

    paint(now) {
      this.pending = false;
      const isFlying = this.camera.step(now);
      const isMoving = this.scene.tween ? this.scene.tween.step(now) : false;
      this.crumbs.draw();
      this.painter.draw(this.scene, this.camera, this);
      this.minimap.draw();
      this.frames++;
      if (isFlying || isMoving) this.invalidate();
    }

    moved() {
      this.isFitted = false;
      this.address?.moved();
      this.invalidate();
    }

    isCalm() {
      return matchMedia("(prefers-reduced-motion: reduce)").matches || this.address?.isQuiet || !this.address;
    }

    /** Take what changed in the layout or state into the picture. */
    rebuild() {
      this.scene.rebuild();
      this.minimap.rebuild();
      this.invalidate();
    }

    // Opening and closing

    toggle(group) {
      const { layout, scene, model, camera } = this;
      const item = model.n + group;
      const old = this.isCalm() ? null : sv.Tween.of(scene);
      const [left, top] = [scene.x[item] + layout.width[item] / 2, scene.y[item]];
      this.setOpen(group, !layout.open[group]);
      layout.layUpFrom(group);
      this.rebuild();
      // What was clicked stays where it is.
      const [dx, dy] = [scene.x[item] + layout.width[item] / 2 - left, scene.y[item] - top];
      old?.shift(dx, dy);
      camera.set(camera.x + dx, camera.y + dy, camera.k);
      old?.start();
      if (layout.open[group]) this.bringIntoView(item);
      else if (this.selected >= 0 && !scene.shown[this.selected]) this.select(item);
      this.panel.show(this.selected);
      this.address?.push();
      this.announce(
        `${model.label(item)} ${layout.open[group] ? "opened, " + sv.plural(scene.counts[4 * group], "node") : "closed"}`,
      );
    }

    bringIntoView(item) {
      const { camera } = this;
      const [left, top, right, bottom] = this.scene.rectangle(item);
      const [x0, y0, x1, y1] = camera.view(-8);
      if (left >= x0 && right <= x1 && top >= y0 && bottom <= y1) return;
      const place = camera.placeFor([left, top, right, bottom], camera.k);
      // Too tall to be read whole: its beginning is shown.
      if (place[2] < 0.45) {
        place[2] = Math.max(place[2], Math.min(camera.k, 0.6, (camera.width - 40) / (right - left)));
        place[2] = Math.max(place[2], 0.3);
        place[1] = Math.min(place[1], Infinity);
        place[1] = top + Math.min((bottom - top) / 2, (camera.height / 2 - 24) / place[2]);
      }
      camera.fly(place, this.isCalm());
    }

    openOnly(groups) {
      const { layout, scene } = this;
      layout.open.fill(0);
      for (const group of groups) layout.open[group] = 1;
      layout.layAll();
      scene.tween = null;
      this.rebuild();
    }

    setAll(isOpen) {
      this.openOnly(isOpen ? Array.from(this.layout.open.keys()) : []);
      this.fit();
      this.address?.push();
      this.announce(isOpen ? "All groups opened" : "All groups closed");
    }

    /** Show another instance of a repeat. */
    choose(group, instance) {
      const { layout, model } = this;
      const wasOpen = Array.from(layout.itemsOf(group + 1)).some(
        (item) => item >= model.n && layout.open[item - model.n],
      );
      layout.chosen[group] = instance;
      for (const item of layout.itemsOf(group + 1)) if (wasOpen && item >= model.n) layout.open[item - model.n] = 1;
      layout.layAll();
      this.rebuild();
      this.panel.show(this.selected);
      this.sidebar.refresh();
      this.announce(`Instance ${instance + 1} of ${model.groupCount[group]}`);
    }

    /** Open the groups around items, and choose their instances; return whether anything changed. */
    reveal(items) {
      const { layout, model, scene } = this;
      let any = false;
      for (const item of items) {
        let at = item;
        for (let room = model.roomOf(at); room > 0; room = model.roomOf(at)) {
          const group = room - 1;
          if (model.isRepeat[group] && at >= model.n && layout.chosen[group] !== model.groupInstance[at - model.n]) {
            layout.chosen[group] = model.groupInstance[at - model.n];
            any = true;
          }
          if (!layout.open[group]) {
            layout.open[group] = 1;
            any = true;
          }
          at = model.n + group;
        }
      }
      if (!any) return false;
      scene.tween = null;
      layout.layAll();
      this.rebuild();
      return true;
    }

    // States

    setState(state, isPlaying) {
      const { model, scene } = this;
      const next = Math.max(0, Math.min(model.states.length - 1, state));
      if (!isPlaying && this.timeline?.timer) this.timeline.run(false);
      if (next === this.state && scene.state === next && scene.since === this.since()) return;
      this.state = next;
      this.refreshState();
      if (!isPlaying) this.address?.push();
      this.announce(sv.Timeline.text(model, next) + ", " + sv.plural(model.states[next].nodes ?? 0, "node"));
    }

    setSinceStep(isStep) {
      this.isStep = isStep;
      this.refreshState();
      this.address?.push();
    }

    setShowsRemoved(shows) {
      this.scene.showsRemoved = shows;
      this.ghosts?.setAttribute("aria-pressed", String(shows));
      this.refreshState();
    }

    refreshState() {
      const { scene } = this;
      scene.tween = null;
      scene.setState(this.state, this.since());
      this.rebuild();
      this.timeline?.show();
      this.panel?.show(this.selected);
      this.sidebar?.refresh();
    }

    // Selecting and going

    /** Select an item, or nothing for -1; a page that acts on what is selected hears of it, and of more items. */
    select(item, isQuiet, isAdding) {
      this.lit = [];
      this.selected = item;
      this.panel.show(item);
      // The details take their room from the graph, before anything is moved to its middle.
      this.resize();
      this.sidebar.refresh();
      this.options.onSelect?.(item, Boolean(isAdding));
      this.invalidate();
      if (isQuiet) return;
      this.address?.push();
      if (item >= 0) this.announce(this.describe(item));
    }

    hover(item) {
      if (item === this.hovered) return;
      this.hovered = item;
      this.canvas.classList.toggle("sv-over", item >= 0);
      this.canvas.title = item >= 0 && item < this.model.n ? this.model.line(item) : "";
      this.invalidate();
    }

    setFocus(isVisible) {
      if (this.focusVisible === isVisible) return;
      this.focusVisible = isVisible;
      this.invalidate();
    }

    describe(item) {
      const { model, scene } = this;
      const status = sv.statusText(scene.status[item]);
      const { into, out } = scene.shown[item] ? scene.edgesAt(item) : { into: [], out: [] };
      const what = model.isGroup(item)
        ? "group " + model.label(item) + ", " + sv.plural(scene.counts[4 * (item - model.n)], "node")
        : model.line(item);
      return [what, status, sv.plural(into.length, "producer"), sv.plural(out.length, "consumer")]
        .filter(Boolean)
        .join(", ");
    }

    /** Make sure that a node is drawn: in a state that has it, or as a ghost. */
    ensureDrawn(items) {
      const { scene, model } = this;
      for (const item of items) {
        if (item >= model.n) continue;
        if (model.born[item] > this.state) this.setState(model.born[item]);
        else if (scene.status[item] === sv.GONE) this.setState(model.died[item]);
        if (scene.status[item] === sv.REMOVED && !scene.showsRemoved) this.setShowsRemoved(true);
      }
    }

    /** Reveal an item, select it and move there. */
    go(item, options = {}) {
      this.ensureDrawn([item]);
      const changed = this.reveal([item]);
      if (options.opens && !this.layout.open[item - this.model.n])
        this.openOnly([
          ...Array.from(this.layout.open.keys()).filter((group) => this.layout.open[group]),
          item - this.model.n,
        ]);
      this.select(item);
      this.center(item, options.isAtOnce || changed);
    }

    /** Reveal the nodes of a site, and move to where all of them are seen. */
    goToSite(site) {
      const items = [...site.added, ...site.altered, ...site.removed].slice(0, 60);
      this.ensureDrawn(items);
      // Other instances of a repeat cannot be shown at the same time: the node that stands for the site decides.
      const first = sv.siteNode(site);
      const changed = this.reveal([...items.slice().reverse(), first]);
      this.select(first);
      this.lit = items.filter((item) => this.scene.shown[item]);
      const near = this.near(first, this.lit);
      const place = this.camera.placeFor(this.around(near), Math.max(1, Math.min(1.2, this.camera.k)), 70);
      this.camera.fly(this.clear(place), this.isCalm() || changed);
      this.invalidate();
    }

    /** Return the items that fit on the screen together with the first one. */
    near(first, items) {
      const { camera } = this;
      const kept = [first];
      for (const item of items) {
        kept.push(item);
        const [left, top, right, bottom] = this.around(kept);
        if (Math.min(camera.width / (right - left), camera.height / (bottom - top)) < 0.6) kept.pop();
      }
      return kept;
    }

    around(items) {
      const box = [Infinity, Infinity, -Infinity, -Infinity];
      for (const item of items) {
        const [left, top, right, bottom] = this.scene.rectangle(item);
        [box[0], box[1], box[2], box[3]] = [
          Math.min(box[0], left),
          Math.min(box[1], top),
          Math.max(box[2], right),
          Math.max(box[3], bottom),
        ];
      }
      return box;
    }

    center(item, isAtOnce) {
      const { camera, scene } = this;
      const shown = scene.shown[item] ? item : scene.rep[item];
      const [left, top, right, bottom] = scene.rectangle(shown);
      const most = scene.shown[shown] === 2 ? 1 : Math.max(0.9, Math.min(1.6, camera.k));
      const place = this.clear(camera.placeFor([left, top, right, bottom], most, 40));
      camera.fly(place, isAtOnce || this.isCalm());
    }

    /** Return a place with its middle where the details do not cover the graph. */
    clear(place) {
      const [stage, panel] = [this.stage.getBoundingClientRect(), this.panel.element.getBoundingClientRect()];
      if (!panel.width || panel.left >= stage.right || panel.top >= stage.bottom) return place;
      const isBelow = panel.left <= stage.left;
      const [dx, dy] = isBelow ? [0, (stage.bottom - panel.top) / 2] : [(stage.right - panel.left) / 2, 0];
      return [place[0] + dx / place[2], place[1] + dy / place[2], place[2]];
    }

    fit(isAtOnce) {
      const { camera, scene } = this;
      const place = camera.placeFor([0, 0, scene.width, scene.height], LARGEST_FIT, 20);
      // A chain of thousands of rows has no shape on a screen: its beginning is shown first.
      if (isAtOnce && place[2] < 0.02 && scene.leaves.length) {
        place[2] = Math.min(0.5, Math.max(0.05, (camera.width - 60) / Math.max(1, scene.width)));
        place[1] = Math.min(scene.height, camera.height / place[2]) / 2 - 20;
        if (scene.width * place[2] > camera.width) place[0] = scene.x[scene.leaves[0]];
      }
      camera.fly(place, isAtOnce || this.isCalm());
      this.isFitted = true;
    }

    /** Move the selection to a neighbor: along edges up and down, in the row left and right. */
    walk(how) {
      const { scene, selected } = this;
      const order = () => Array.from(scene.leaves).sort((a, b) => scene.y[a] - scene.y[b] || scene.x[a] - scene.x[b]);
      let next = -1;
      if (selected < 0 || !scene.shown[selected] || how === "first") next = order()[0] ?? -1;
      else if (how === "next" || how === "previous") {
        const all = order();
        next = all[all.indexOf(selected) + (how === "next" ? 1 : -1)] ?? -1;
      } else if (how === "ArrowUp" || how === "ArrowDown") {
        const { into, out } = scene.edgesAt(selected);
        const edges = how === "ArrowUp" ? into : out;
        const far = how === "ArrowUp" ? scene.edges.from : scene.edges.to;
        if (edges.length) next = far[edges[0]];
      } else {
        const rows = this.layout.rows[this.model.roomOf(selected)];
        const at = rows.items.indexOf(selected) + (how === "ArrowLeft" ? -1 : 1);
        next = rows.items[at] ?? -1;
      }
      if (next < 0) return;
      this.select(next);
      const [left, top, right, bottom] = scene.rectangle(next);
      const [x0, y0, x1, y1] = this.camera.view(-30);
      if (left < x0 || right > x1 || top < y0 || bottom > y1) this.center(next);
    }
  };
})(surgeryViewer);
