// The side: what changed, and the outline.
(function (sv) {
  "use strict";

  const element = sv.element;
  const AT_ONCE = 60;

  /** Fill `list` with rows of `items`, the first ones at once and the others when asked for. */
  sv.fillList = function (list, items, row, from = 0, atOnce = AT_ONCE) {
    const end = Math.min(items.length, from + atOnce);
    for (let k = from; k < end; k++) list.append(row(items[k], k));
    if (end < items.length) {
      const more = element("button", {
        type: "button",
        class: "sv-link",
        text: `${(items.length - end).toLocaleString("en-US")} more`,
      });
      const last = element("li", { class: "sv-more" }, more);
      more.addEventListener("click", () => {
        last.remove();
        sv.fillList(list, items, row, end, atOnce * 5);
        list.children[from + atOnce]?.querySelector("button")?.focus();
      });
      list.append(last);
    }
  };

  /** The list of changes: passes, kinds of sites, sites. */
  sv.ChangeList = class {
    constructor(view) {
      this.view = view;
      this.element = element("div", { class: "sv-changes" });
      this.isFilled = false;
    }

    fill() {
      if (this.isFilled) return;
      this.isFilled = true;
      const passes = sv.changes(this.view.model);
      if (!passes.length) {
        this.element.append(element("p", { class: "sv-muted sv-pad", text: "No node changed." }));
        return;
      }
      const list = element("ol", { class: "sv-passes" });
      sv.fillList(list, passes, (pass) => this.pass(pass), 0, 200);
      this.element.append(list);
    }

    pass(pass) {
      const row = element("li", { class: "sv-pass" });
      const sites = pass.kinds.reduce((sum, kind) => sum + kind.sites.length, 0);
      const head = element(
        "h3",
        { class: "sv-pass-head" },
        element("span", { text: sv.cut(pass.pass, 120) }),
        element("small", { text: sv.plural(sites, "site") }),
      );
      const kinds = element("ul", { class: "sv-kinds" });
      sv.fillList(kinds, pass.kinds, (kind) => this.kind(kind), 0, 12);
      row.append(head, kinds);
      return row;
    }

    kind(kind) {
      if (kind.sites.length === 1) return element("li", {}, this.site(kind.sites[0], kind.text, true));
      const list = element("ul", { class: "sv-sites" });
      const fold = element("details", { class: "sv-kind" });
      const mark = element("span", { class: "sv-mark " + markClass(kind.sites[0]), "aria-hidden": "true" });
      fold.append(element("summary", {}, mark, element("b", { text: kind.sites.length + " × " }), kind.text), list);
      fold.addEventListener("toggle", () => {
        if (fold.open && !list.children.length)
          sv.fillList(list, kind.sites, (site) => this.site(site, this.place(site), false));
      });
      return element("li", {}, fold);
    }

    /** Return where a site is: the name of its node. */
    place(site) {
      const { model } = this.view;
      const node = sv.siteNode(site);
      return model.strings[model.name[node]] || model.label(node);
    }

    site(site, text, hasMark) {
      const button = element("button", { type: "button", class: "sv-site", onclick: () => this.view.goToSite(site) });
      if (hasMark) button.append(element("span", { class: "sv-mark " + markClass(site), "aria-hidden": "true" }));
      button.append(element("span", { text: sv.cut(text, 120) }));
      const rest = site.removed.length + site.added.length + site.altered.length;
      const row = hasMark ? button : element("li", {}, button);
      // The nodes of a site one by one, so that each is a click away.
      if (rest > 1)
        return hasMark ? element("div", {}, button, this.members(site)) : (row.append(this.members(site)), row);
      return row;
    }

    members(site) {
      const fold = element("details", { class: "sv-members" });
      const list = element("ul", { class: "sv-links" });
      const items = [...site.added, ...site.altered, ...site.removed];
      fold.append(element("summary", { text: sv.plural(items.length, "node") }), list);
      fold.addEventListener("toggle", () => {
        if (fold.open && !list.children.length)
          sv.fillList(list, items, (item) => element("li", {}, this.view.panel.link(item)));
      });
      return fold;
    }
  };

  function markClass(site) {
    if (site.added.length) return "sv-mark-added";
    return site.removed.length ? "sv-mark-removed" : "sv-mark-altered";
  }

  /** The side with its two tabs. */
  sv.Sidebar = class {
    constructor(view) {
      this.view = view;
      this.changes = new sv.ChangeList(view);
      this.tree = new sv.Tree(view);
      this.tabs = new Map();
      const bar = element("div", { class: "sv-tablist", role: "tablist", "aria-label": "Side" });
      const close = sv.iconButton("close", "Close the side", () => view.showSide(false));
      this.element = element("div", { class: "sv-side sv-off" }, element("div", { class: "sv-tabs" }, bar, close));
      const pages =
        view.model.states.length > 1
          ? [
              ["changes", "Changes", this.changes.element],
              ["outline", "Outline", this.tree.element],
            ]
          : [["outline", "Outline", this.tree.element]];
      for (const [name, text, content] of pages) this.addTab(bar, name, text, content);
      this.pick(pages[0][0], true);
    }

    addTab(bar, name, text, content) {
      const tab = element("button", {
        type: "button",
        role: "tab",
        id: "sv-tab-" + name,
        class: "sv-tab",
        text,
        "aria-controls": "sv-page-" + name,
        onclick: () => this.pick(name),
      });
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const names = Array.from(this.tabs.keys());
        this.pick(names[(names.indexOf(name) + step + names.length) % names.length]);
        this.tabs.get(this.current)[0].focus();
      });
      const page = element(
        "div",
        {
          role: "tabpanel",
          id: "sv-page-" + name,
          class: "sv-page",
          "aria-labelledby": "sv-tab-" + name,
          tabindex: "-1",
        },
        content,
      );
      bar.append(tab);
      this.element.append(page);
      this.tabs.set(name, [tab, page]);
    }

    pick(name, isQuiet) {
      this.current = name;
      for (const [each, [tab, page]] of this.tabs) {
        tab.setAttribute("aria-selected", String(each === name));
        tab.tabIndex = each === name ? 0 : -1;
        page.classList.toggle("sv-off", each !== name);
      }
      if (!isQuiet) this.refresh();
    }

    /** Fill what is visible. */
    refresh() {
      if (this.element.classList.contains("sv-off")) return;
      if (this.current === "changes") this.changes.fill();
      else this.tree.refresh();
    }
  };
})(surgeryViewer);
