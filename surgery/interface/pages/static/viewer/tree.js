// The outline: the same graph as a tree, for the keyboard and screen readers.
(function (sv) {
  "use strict";

  const element = sv.element;
  const AT_ONCE = 100;

  sv.Tree = class {
    constructor(view) {
      this.view = view;
      this.element = element("ul", { class: "sv-tree", role: "tree", "aria-label": "Outline of the graph" });
      this.element.addEventListener("keydown", (event) => this.key(event));
      this.element.addEventListener("click", (event) => this.click(event));
      this.rows = new Map();
      this.current = null;
      this.version = "";
    }

    /** Draw the rows anew where the state changed, and mark what is selected. */
    refresh() {
      const { view } = this;
      const version = [view.state, view.since, view.scene.showsRemoved, Array.from(view.layout.chosen).join()].join(
        "|",
      );
      if (version !== this.version) {
        this.version = version;
        const open = Array.from(this.rows)
          .filter(([, row]) => row.getAttribute("aria-expanded") === "true")
          .map(([item]) => item);
        this.rows.clear();
        this.fill(this.element, 0, 1);
        for (const item of open.sort((a, b) => this.depth(a) - this.depth(b))) this.expand(this.rows.get(item));
      }
      this.markSelected();
    }

    depth(item) {
      return item < this.view.model.n ? 0 : this.view.model.depth[item - this.view.model.n];
    }

    itemsOf(room) {
      const { layout, scene } = this.view;
      return Array.from(layout.itemsOf(room)).filter((item) => scene.isDrawn(item));
    }

    fill(list, room, level) {
      const items = this.itemsOf(room);
      list.replaceChildren();
      this.append(list, items, level, 0);
      const first = this.element.querySelector('[role="treeitem"]');
      if (first && !this.element.querySelector('[tabindex="0"]')) this.focusable(first);
    }

    append(list, items, level, from) {
      const end = Math.min(items.length, from + AT_ONCE);
      for (let k = from; k < end; k++) list.append(this.row(items[k], level, k + 1, items.length));
      if (end === items.length) return;
      const more = element("li", {
        role: "treeitem",
        class: "sv-tree-row sv-tree-more",
        tabindex: "-1",
        "aria-level": level,
        "aria-selected": "false",
      });
      more.append(
        element("span", { class: "sv-tree-label", text: (items.length - end).toLocaleString("en-US") + " more" }),
      );
      more.more = () => {
        more.remove();
        this.append(list, items, level, end);
        this.focus(this.rows.get(items[end]));
      };
      list.append(more);
    }

    row(item, level, place, size) {
      const { model, scene } = this.view;
      const isGroup = model.isGroup(item);
      const row = element("li", {
        role: "treeitem",
        class: "sv-tree-row " + sv.statusClass(scene.status[item]),
        tabindex: "-1",
        "aria-level": level,
        "aria-setsize": size,
        "aria-posinset": place,
        "aria-expanded": isGroup ? "false" : null,
        "aria-selected": "false",
      });
      const label = element("span", { class: "sv-tree-label" }, element("b", { text: model.label(item) }));
      if (isGroup)
        label.append(
          sv.timesOf(scene, item),
          element("small", {
            text: sv.plural(scene.counts[4 * (item - model.n)], "node") + " " + sv.changesOf(scene, item - model.n),
          }),
        );
      else {
        if (!model.isPort(item)) label.append(element("small", { text: sv.cut(model.strings[model.name[item]], 60) }));
        const status = sv.statusText(scene.status[item]);
        if (status) label.append(element("em", { text: status }));
      }
      label.style.paddingInlineStart = 8 + 14 * (level - 1) + "px";
      row.append(label);
      row.item = item;
      this.rows.set(item, row);
      return row;
    }

    expand(row) {
      if (!row || row.getAttribute("aria-expanded") !== "false") return;
      row.setAttribute("aria-expanded", "true");
      const list = element("ul", { role: "group" });
      row.append(list);
      this.fill(list, row.item - this.view.model.n + 1, Number(row.getAttribute("aria-level")) + 1);
    }

    collapse(row) {
      row.setAttribute("aria-expanded", "false");
      row.querySelectorAll('[role="treeitem"]').forEach((inner) => this.rows.delete(inner.item));
      row.querySelector('[role="group"]')?.remove();
    }

    focusable(row) {
      if (this.current) this.current.tabIndex = -1;
      this.current = row;
      row.tabIndex = 0;
    }

    focus(row) {
      if (!row) return;
      this.focusable(row);
      row.focus();
    }

    /** Mark the row of the selected item, if its room is open in the tree. */
    markSelected() {
      this.element
        .querySelectorAll('[aria-selected="true"]')
        .forEach((row) => row.setAttribute("aria-selected", "false"));
      const { model, selected } = this.view;
      if (selected < 0) return;
      const path = [];
      for (let room = model.roomOf(selected); room > 0; room = model.roomOf(model.n + room - 1))
        path.push(model.n + room - 1);
      for (const item of path.reverse()) this.expand(this.rows.get(item));
      const row = this.rows.get(selected);
      if (!row) return;
      row.setAttribute("aria-selected", "true");
      this.focusable(row);
      if (!this.element.contains(document.activeElement)) row.firstChild.scrollIntoView({ block: "nearest" });
    }

    click(event) {
      const row = event.target.closest('[role="treeitem"]');
      if (!row) return;
      if (row.more) return void row.more();
      const isArrow =
        event.clientX - row.firstChild.getBoundingClientRect().left <
        parseFloat(row.firstChild.style.paddingInlineStart) + 14;
      if (row.hasAttribute("aria-expanded") && isArrow) this.toggle(row);
      else this.choose(row);
    }

    toggle(row) {
      if (row.getAttribute("aria-expanded") === "true") this.collapse(row);
      else this.expand(row);
    }

    choose(row) {
      if (row.more) return void row.more();
      this.focus(row);
      this.view.go(row.item);
    }

    key(event) {
      const row = event.target.closest('[role="treeitem"]');
      if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
      const rows = Array.from(this.element.querySelectorAll('[role="treeitem"]'));
      const at = rows.indexOf(row);
      const isOpen = row.getAttribute("aria-expanded");
      const actions = {
        ArrowDown: () => this.focus(rows[at + 1]),
        ArrowUp: () => this.focus(rows[at - 1]),
        Home: () => this.focus(rows[0]),
        End: () => this.focus(rows[rows.length - 1]),
        ArrowRight: () => (isOpen === "false" ? this.expand(row) : isOpen === "true" && this.focus(rows[at + 1])),
        ArrowLeft: () =>
          isOpen === "true" ? this.collapse(row) : this.focus(row.parentElement.closest('[role="treeitem"]')),
        Enter: () => this.choose(row),
        " ": () => this.choose(row),
      };
      if (!actions[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      actions[event.key]();
    }
  };
})(surgeryViewer);
