// Mouse, touch and keyboard on the graph.
(function (sv) {
  "use strict";

  const SLACK = 4;

  sv.Input = class {
    constructor(view) {
      this.view = view;
      this.pointers = new Map();
      const { canvas, stage } = view;
      canvas.addEventListener("pointerdown", (event) => this.down(event));
      canvas.addEventListener("pointermove", (event) => this.move(event));
      for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.up(event));
      canvas.addEventListener("pointerleave", () => view.hover(-1));
      canvas.addEventListener("dblclick", (event) => this.double(event));
      canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      stage.addEventListener("keydown", (event) => this.key(event));
      stage.addEventListener("focus", () => view.setFocus(stage.matches(":focus-visible")));
      stage.addEventListener("blur", () => view.setFocus(false));
      document.addEventListener("keydown", (event) => this.anywhere(event));
    }

    place(event) {
      const box = this.view.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }

    down(event) {
      if (event.button > 0 && event.pointerType === "mouse" && event.button !== 1) return;
      this.view.canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.place(event));
      this.start = this.pointers.size === 1 ? this.place(event) : null;
      this.view.stage.focus({ preventScroll: true });
      this.view.setFocus(false);
    }

    move(event) {
      const { view } = this;
      const place = this.place(event);
      const before = this.pointers.get(event.pointerId);
      if (!before) {
        view.hover(this.hit(place));
        return;
      }
      if (this.pointers.size === 2) this.pinch(event.pointerId, before, place);
      else if (!this.start || Math.hypot(place[0] - this.start[0], place[1] - this.start[1]) > SLACK) {
        this.start = null;
        view.canvas.classList.add("sv-grabbed");
        view.camera.pan(place[0] - before[0], place[1] - before[1]);
      } else return;
      this.pointers.set(event.pointerId, place);
    }

    pinch(id, before, place) {
      this.start = null;
      const [other] = Array.from(this.pointers)
        .filter(([each]) => each !== id)
        .map(([, at]) => at);
      const distance = (a, b) => Math.max(1, Math.hypot(a[0] - b[0], a[1] - b[1]));
      const { camera } = this.view;
      camera.zoom(
        distance(place, other) / distance(before, other),
        (place[0] + other[0]) / 2,
        (place[1] + other[1]) / 2,
      );
      camera.pan((place[0] - before[0]) / 2, (place[1] - before[1]) / 2);
    }

    up(event) {
      const { view } = this;
      this.pointers.delete(event.pointerId);
      view.canvas.classList.remove("sv-grabbed");
      if (!this.start || event.type === "pointercancel") return;
      this.start = null;
      const place = this.place(event);
      const item = this.hit(place);
      if (item >= view.model.n && this.isArrow(item, place)) view.toggle(item - view.model.n);
      else view.select(item, false, event.shiftKey || event.ctrlKey || event.metaKey);
    }

    /** Return the item under a place of the screen; of opened groups their titles. */
    hit([px, py]) {
      const [x, y] = this.view.camera.toPlane(px, py);
      return this.view.scene.at(x, y, true);
    }

    /** Return whether a place is on the arrow of a group, which opens and closes it. */
    isArrow(item, [px]) {
      const { scene, camera } = this.view;
      const [left] = camera.toScreen(scene.x[item], scene.y[item]);
      return px - Math.max(0, left) < 22 * Math.max(0.7, Math.min(1.2, camera.k));
    }

    double(event) {
      const item = this.hit(this.place(event));
      const { view } = this;
      if (item >= view.model.n) {
        if (!this.isArrow(item, this.place(event))) view.toggle(item - view.model.n);
      } else if (item < 0) view.camera.zoom(1.6, ...this.place(event));
      else view.center(item);
    }

    // In a page that scrolls the wheel zooms after a click into the graph, or with Ctrl.
    wheel(event) {
      const { view } = this;
      const page = document.scrollingElement;
      const scrolls = page && page.scrollHeight > page.clientHeight + 1;
      if (scrolls && !event.ctrlKey && !event.metaKey && !view.root.contains(document.activeElement)) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 300 : 1;
      const delta = Math.max(-240, Math.min(240, event.deltaY * lines));
      if (event.shiftKey) view.camera.pan(-delta, 0);
      else view.camera.zoom(Math.exp(-delta * (event.ctrlKey ? 0.008 : 0.0022)), ...this.place(event));
    }

    anywhere(event) {
      const { search, stage, root } = this.view;
      if (!root.isConnected) return;
      const target = event.target instanceof Element ? event.target : document.body;
      const isText = target.closest("input:not([type=range]), select, textarea, [contenteditable]");
      if (event.key === "/" && !isText && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        search.input.focus();
        search.input.select();
      } else if (event.key === "Escape" && !isText && target !== stage && root.contains(target)) {
        stage.focus();
      }
    }

    key(event) {
      if (event.target !== this.view.stage || event.ctrlKey || event.metaKey) return;
      const { view } = this;
      const { camera } = view;
      const arrow = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      const actions = {
        "+": () => camera.zoom(1.25),
        "=": () => camera.zoom(1.25),
        "-": () => camera.zoom(0.8),
        _: () => camera.zoom(0.8),
        0: () => view.fit(),
        Enter: () => this.enter(),
        Escape: () => this.escape(),
        "[": () => view.setState(view.state - 1),
        "]": () => view.setState(view.state + 1),
        Home: () => view.walk("first"),
        n: () => view.walk("next"),
        p: () => view.walk("previous"),
      };
      const action = arrow
        ? () => (event.altKey || event.shiftKey ? view.walk(event.key) : camera.pan(arrow[0] * 60, arrow[1] * 60))
        : actions[event.key];
      if (!action) return;
      event.preventDefault();
      view.setFocus(true);
      action();
    }

    enter() {
      const { view } = this;
      if (view.selected >= view.model.n) view.toggle(view.selected - view.model.n);
      else if (view.selected >= 0) view.panel.title.focus();
      else view.walk("first");
    }

    /** Leave the node to its group, and the group to the one around it. */
    escape() {
      const { view } = this;
      view.select(-1);
    }
  };
})(surgeryViewer);
