// What is shown, in the address: #state=7&node=123&at=x,y,zoom. Other addresses belong to the page.
(function (sv) {
  "use strict";

  const KEYS = new Set(["state", "node", "group", "at", "open", "since"]);
  const MOST_OPEN = 60;

  /** Return the parts of an address of the viewer, null for one of the page. */
  sv.parseAddress = function (hash) {
    const parts = {};
    for (const word of hash.replace(/^#/, "").split("&")) {
      const equals = word.indexOf("=");
      const key = word.slice(0, Math.max(0, equals));
      if (!KEYS.has(key)) return null;
      parts[key] = word.slice(equals + 1);
    }
    return parts;
  };

  function whole(text, limit) {
    return /^\d{1,9}$/.test(text ?? "") && Number(text) < limit ? Number(text) : -1;
  }

  sv.Address = class {
    constructor(view) {
      this.view = view;
      this.written = null;
      window.addEventListener("hashchange", () => this.changed());
      window.addEventListener("popstate", () => this.changed());
    }

    /** Return the address of what is shown; of the place too, with `isWhole`. */
    text(isWhole) {
      const { view } = this;
      const { model, camera } = view;
      const parts = [];
      if (view.state !== model.states.length - 1) parts.push("state=" + view.state);
      if (view.isStep) parts.push("since=step");
      if (view.selected >= 0)
        parts.push(model.isGroup(view.selected) ? "group=" + (view.selected - model.n) : "node=" + view.selected);
      const open = Array.from(view.layout.open.keys()).filter((group) => view.layout.open[group]);
      const isFirst = open.join() === view.firstOpen.join();
      if (!isFirst && open.length <= MOST_OPEN) parts.push("open=" + open.join(","));
      if (isWhole)
        parts.push("at=" + [Math.round(camera.x), Math.round(camera.y), Number(camera.k.toPrecision(3))].join(","));
      return parts.join("&");
    }

    /** Write a new entry of the history for what was selected or chosen. */
    push() {
      const text = this.text(false);
      if (this.isQuiet || text === this.short) return;
      this.short = text;
      this.write(text, "pushState");
    }

    /** Keep the place in the current entry, some time after it last changed. */
    moved() {
      if (this.isQuiet) return;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.write(this.text(true), "replaceState"), 300);
    }

    write(text, how) {
      clearTimeout(this.timer);
      if (!this.view.root.isConnected) return;
      const isOther = location.hash && !sv.parseAddress(location.hash);
      // The place alone does not take the address from a section of the page.
      if (how === "replaceState" && isOther) return;
      this.written = text ? "#" + text : "";
      try {
        history[how](null, "", text ? "#" + text : location.pathname + location.search);
      } catch {
        // Where the page has no address, as in a frame of a notebook, there is none to write.
        this.written = null;
      }
    }

    changed() {
      if (location.hash === this.written || !this.view.root.isConnected) return;
      const parts = sv.parseAddress(location.hash);
      if (!parts && location.hash) return;
      this.written = location.hash;
      this.read(parts || {});
      if (parts && this.view.element.scrollIntoView) this.view.element.scrollIntoView({ block: "nearest" });
    }

    /** Show what the parts of an address say. */
    read(parts) {
      const { view } = this;
      const { model } = view;
      this.isQuiet = true;
      const state = whole(parts.state, model.states.length);
      view.isStep = parts.since === "step";
      view.setState(state < 0 ? model.states.length - 1 : state);
      const groups =
        parts.open === undefined
          ? view.firstOpen
          : parts.open
              .split(",")
              .map((text) => whole(text, model.g))
              .filter((group) => group >= 0);
      view.openOnly(groups);
      const node = whole(parts.node, model.n);
      const group = whole(parts.group, model.g);
      const item = node >= 0 ? node : group >= 0 ? model.n + group : -1;
      const place = (parts.at || "").split(",").map(Number);
      const hasPlace = parts.at !== undefined && place.length === 3 && place.every(Number.isFinite) && place[2] > 0;
      if (item >= 0) view.go(item, { isAtOnce: true, opens: item >= model.n && !hasPlace });
      else {
        view.select(-1);
        if (!hasPlace) view.fit(true);
      }
      if (hasPlace) view.camera.set(...place);
      this.short = this.text(false);
      this.isQuiet = false;
    }
  };
})(surgeryViewer);
