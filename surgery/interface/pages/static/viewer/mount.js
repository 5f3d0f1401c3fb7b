// Puts the viewer into an element of the page.
(function (sv) {
  "use strict";

  const element = sv.element;

  /** The legend: what forms and colors mean. */
  class Legend {
    constructor(view) {
      this.view = view;
      this.element = element("div", { class: "sv-legend sv-off", role: "region", "aria-label": "Legend" });
    }

    draw() {
      const { palette, model } = this.view;
      const marks = [
        ["plain", "node"],
        ["group", "group: double-click or Enter opens it"],
        ["repeat", "repeated block, ×12"],
        ["edge", "edges of the selection from producers"],
        ["edge-out", "and to consumers"],
      ];
      if (model.states.length > 1)
        marks.push(["added", "added"], ["altered", "altered in place"], ["removed", "removed"]);
      const list = element(
        "ul",
        {},
        ...marks.map(([mark, text]) => element("li", {}, element("i", { class: "sv-swatch sv-swatch-" + mark }), text)),
      );
      const present = new Set(sv.families(model));
      const families = element("ul", {});
      sv.FAMILIES.forEach((family, k) => {
        if (!present.has(k)) return;
        const swatch = element("i", { class: "sv-swatch" });
        swatch.style.background = palette.families[k].fill;
        swatch.style.borderColor = palette.families[k].line;
        swatch.style.boxShadow = `inset 4px 0 0 ${palette.families[k].strong}`;
        families.append(element("li", {}, swatch, this.view.heat ? this.view.heat.names[k] : family.name));
      });
      const keys = element("dl", { class: "sv-keys" });
      for (const [key, text] of [
        ["/", "search"],
        ["+ −", "zoom"],
        ["0", "fit"],
        ["arrows", "move"],
        ["Shift arrows", "next node"],
        ["Enter", "open group"],
        ["[ ]", "state"],
      ]) {
        keys.append(element("dt", {}, element("kbd", { text: key })), element("dd", { text }));
      }
      this.element.replaceChildren(list, families, keys);
    }
  }

  /** The groups around what is visible, where their titles are out of sight. */
  class Crumbs {
    constructor(view) {
      this.view = view;
      this.element = element("nav", { class: "sv-crumbs sv-off", "aria-label": "Groups around" });
      this.shown = "";
    }

    draw() {
      const { scene, camera, model } = this.view;
      const [x, y] = camera.toPlane(camera.width / 2, 70);
      const items = [];
      for (const item of scene.frames) {
        const [left, top, right, bottom] = scene.rectangle(item);
        if (x >= left && x <= right && bottom >= y && camera.toScreen(0, top)[1] < -4) items.push(item);
      }
      const shown = items.join();
      if (shown === this.shown) return;
      this.shown = shown;
      this.element.classList.toggle("sv-off", !items.length);
      this.element.replaceChildren(
        ...items.map((item) =>
          element("button", {
            type: "button",
            class: "sv-crumb",
            text: sv.cut(model.rawLabel(item), 28),
            onclick: () => this.view.go(item),
          }),
        ),
      );
      const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = this.element;
      this.view.painter.covered = items.length ? [offsetLeft + offsetWidth, offsetTop + offsetHeight] : [0, 0];
    }
  }

  function toolbar(view) {
    const bar = element("div", { class: "sv-toolbar", role: "toolbar", "aria-label": "Graph" });
    const hasChanges = view.model.states.length > 1;
    const side = sv.iconButton(
      "side",
      hasChanges ? "Changes and outline" : "Outline and changes",
      () => view.showSide(),
      { "aria-expanded": "false" },
      hasChanges ? "Changes" : "Outline",
    );
    view.sideButton = side;
    view.search = new sv.SearchBox(view);
    const group = (...children) => element("div", { class: "sv-buttons" }, ...children);
    view.zoomButtons = [
      sv.iconButton("minus", "Zoom out (−)", () => view.camera.zoom(0.75)),
      sv.iconButton("plus", "Zoom in (+)", () => view.camera.zoom(1.35)),
      sv.iconButton("fit", "Fit (0)", () => view.fit()),
    ];
    const more = [
      sv.iconButton("expand", "Open all groups", () => view.setAll(true), {}, "Open all"),
      sv.iconButton("collapse", "Close all groups", () => view.setAll(false), {}, "Close all"),
    ];
    if (view.model.g === 0) more.length = 0;
    const save = sv.iconButton(
      "export",
      "Save SVG of what is selected or visible",
      () => sv.saveSvg(view),
      {},
      "Save SVG",
    );
    const extract = sv.iconButton(
      "copy",
      "Copy command that extracts what is selected or visible",
      () => sv.copyExtractCommand(view),
      {},
      "Copy command",
    );
    const open = sv.iconButton(
      "edit",
      "Open in the workbench: copy the command that edits the model in the browser",
      () => sv.copyOpenCommand(view),
      {},
      "Open in the workbench",
    );
    const legend = sv.iconButton(
      "legend",
      "Legend",
      () => {
        const isOff = view.legend.element.classList.toggle("sv-off");
        legend.setAttribute("aria-expanded", String(!isOff));
      },
      { "aria-expanded": "false" },
      "Legend",
    );
    bar.append(group(side), view.search.element, element("div", { class: "sv-space" }));
    if (hasChanges) {
      view.ghosts = sv.iconButton(
        "ghost",
        "Removed nodes",
        () => view.setShowsRemoved(!view.scene.showsRemoved),
        { "aria-pressed": String(view.scene.showsRemoved) },
        "Removed",
      );
      bar.append(group(view.ghosts));
    }
    if (more.length) bar.append(element("div", { class: "sv-buttons sv-wide-only" }, ...more));
    extract.classList.add("sv-wide-only");
    open.classList.add("sv-wide-only");
    bar.append(group(save, extract), ...(view.options.opens ? [group(open)] : []), group(legend));
    return bar;
  }

  function announcer(view) {
    const live = element("div", { class: "sv-unseen", "aria-live": "polite", role: "status" });
    const toast = element("div", { class: "sv-toast sv-off", "aria-hidden": "true" });
    /** Tell screen readers, and all with `isSeen`, what happened. */
    view.announce = (text, isSeen) => {
      live.textContent = text;
      if (!isSeen) return;
      toast.textContent = text;
      toast.classList.remove("sv-off");
      clearTimeout(view.toastTimer);
      view.toastTimer = setTimeout(() => toast.classList.add("sv-off"), 2600);
    };
    return [live, toast];
  }

  /**
   * Draw a drawing document in `target`, and return the view.
   *
   * `options.side` says whether the side is open at first; by default it is where there is room and something changed.
   * `options.opens` are the words of the command that opens the model in the workbench, if there is one.
   */
  sv.mount = function (target, document_, options = {}) {
    const model = new sv.Model(document_);
    const view = new sv.View(model, options);
    const canvas = element("canvas", { class: "sv-canvas", "aria-hidden": "true" });
    const help =
      "Graph of " +
      sv.cut(model.title, 80) +
      ". Arrow keys move, plus and minus zoom, Shift with arrows selects neighbors, Enter opens a group, slash searches. The outline has the same as a tree.";
    const stage = element("div", { class: "sv-stage", tabindex: "0", role: "application", "aria-label": help }, canvas);
    const root = element("div", { class: "sv" });
    const [live, toast] = announcer(view);
    const painter = new sv.Painter(canvas);
    Object.assign(view, {
      root,
      element: target,
      canvas,
      stage,
      painter,
      panel: new sv.Panel(view),
      minimap: new sv.Minimap(view),
      legend: new Legend(view),
      crumbs: new Crumbs(view),
    });
    view.sidebar = new sv.Sidebar(view);
    const bar = toolbar(view);
    const zoom = element("div", { class: "sv-zoom sv-buttons" }, ...view.zoomButtons);
    const center = element(
      "div",
      { class: "sv-center" },
      stage,
      view.crumbs.element,
      view.legend.element,
      view.minimap.canvas,
      zoom,
      toast,
    );
    const timeline = model.states.length > 1 ? new sv.Timeline(view) : null;
    root.append(
      bar,
      element("div", { class: "sv-main" }, view.sidebar.element, center, view.panel.element),
      ...(timeline ? [timeline.element] : []),
      live,
    );
    view.showSide = (isOpen) => {
      const off = view.sidebar.element.classList.toggle("sv-off", isOpen === undefined ? undefined : !isOpen);
      view.sideButton.setAttribute("aria-expanded", String(!off));
      view.sidebar.refresh();
    };
    target.replaceChildren(root);
    const isWide = target.clientWidth >= 1000;
    view.showSide(options.side ?? (isWide && model.states.length > 1));
    view.start({ timeline });
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
      matchMedia(query).addEventListener("change", () => view.loadPalette());
    window.addEventListener("surgery:theme", () => view.loadPalette());
    return view;
  };
})(surgeryViewer);
