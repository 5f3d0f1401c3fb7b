// Search by name, operator, pass and shape.
(function (sv) {
  "use strict";

  const KEYS = new Set(["op", "name", "pass", "shape", "is", "group"]);
  const STATUS = { added: sv.ADDED, altered: sv.ALTERED, changed: sv.ALTERED, removed: sv.REMOVED };

  /** Split "op:MatMul layer.3" into [{key, text}]; what has no known key is looked for everywhere. */
  function parse(query) {
    return query
      .toLowerCase()
      .split(/\s+/)
      .filter(Boolean)
      .map((word) => {
        const colon = word.indexOf(":");
        const key = word.slice(0, Math.max(0, colon));
        return KEYS.has(key) && colon + 1 < word.length
          ? { key, text: word.slice(colon + 1) }
          : { key: "", text: word };
      });
  }

  sv.Finder = class {
    constructor(scene) {
      this.scene = scene;
      this.model = scene.model;
    }

    /** Return {total, items}: up to `limit` items that match all words, the best first. */
    find(query, limit) {
      const words = parse(query);
      if (!words.length) return { total: 0, items: [] };
      const { model } = this;
      const tests = words.map((word) => this.test(word));
      const found = [];
      for (let item = 0; item < model.n + model.g; item++) {
        if (this.scene.status[item] === sv.UNBORN && item >= model.n) continue;
        if (tests.every((test) => test(item))) found.push(item);
      }
      const rank = new Map(found.map((item) => [item, this.rank(item, words)]));
      found.sort((a, b) => rank.get(a) - rank.get(b) || a - b);
      return { total: found.length, items: found.slice(0, limit) };
    }

    /** What is named or called so comes first, what is in the model before what was removed. */
    rank(item, words) {
      const { model } = this;
      const label = model.rawLabel(item).toLowerCase();
      const name = item < model.n ? model.strings[model.name[item]].toLowerCase() : label;
      let rank = [sv.UNBORN, sv.GONE, sv.REMOVED].includes(this.scene.status[item]) ? 8 : 0;
      for (const { text } of words) {
        if (label === text || name === text) rank += 0;
        else if (label.startsWith(text)) rank += 1;
        else if (name.endsWith(text)) rank += 2;
        else rank += name.includes(text) || label.includes(text) ? 3 : 4;
      }
      return rank;
    }

    /** Return the strings that have `text` in them. */
    hits(text) {
      return Uint8Array.from(this.model.lower(), (string) => (string.includes(text) ? 1 : 0));
    }

    test({ key, text }) {
      const { model, scene } = this;
      if (key === "is") return (item) => item < model.n && scene.status[item] === STATUS[text];
      const hits = this.hits(text);
      const inside = this.inside(hits);
      const group = (item) => item >= model.n && hits[model.groupName[item - model.n]] === 1;
      if (key === "group")
        return (item) => (item < model.n ? model.group[item] >= 0 && inside[model.group[item]] === 1 : group(item));
      const shapes =
        key === "shape" || (!key && /[0-9]/.test(text))
          ? this.hits(text.replace(/(?<=[\w?])[x×*](?=[\w?])/g, ","))
          : hits;
      const ways = {
        op: (node) => hits[model.op[node]] === 1,
        name: (node) =>
          hits[model.name[node]] === 1 ||
          this.hasValue(node, model.value, hits) ||
          this.wasCalled(node, hits) ||
          (model.group[node] >= 0 && inside[model.group[node]] === 1),
        pass: (node) => hits[model.pass[node]] === 1 || hits[model.killer[node]] === 1,
        shape: (node) => this.hasValue(node, model.type, shapes) || this.hasType(node, shapes),
      };
      if (key) return (item) => item < model.n && ways[key](item);
      return (item) => (item < model.n ? Object.values(ways).some((way) => way(item)) : group(item));
    }

    /** Return the groups that have a hit in their own name or in one around them. */
    inside(hits) {
      const { model } = this;
      const found = new Uint8Array(model.g);
      for (let k = model.g - 1; k >= 0; k--) {
        const group = model.deepFirst[k];
        const up = model.parent[group];
        found[group] = hits[model.groupName[group]] || (up >= 0 ? found[up] : 0);
      }
      return found;
    }

    hasValue(node, column, hits) {
      const { model } = this;
      for (let at = model.outStart[node]; at < model.outStart[node + 1]; at++)
        if (hits[column[model.outEdges[at]]]) return true;
      return false;
    }

    /** Return whether an alteration of a node, such as that of its name, says so. */
    wasCalled(node, hits) {
      const { model } = this;
      for (let at = model.alteredStart[node]; at < model.alteredStart[node + 1]; at++) {
        if (hits[model.alteredWhat[model.alteredRows[at]]]) return true;
      }
      return false;
    }

    hasType(node, hits) {
      const { model } = this;
      if (model.port[node] >= 0) return hits[model.portType[model.port[node]]] === 1;
      const details = model.details[node];
      return Boolean(details && details.outputs && details.outputs.some(([, type]) => hits[type]));
    }
  };

  const LIMIT = 200;

  /** The search box with its list of results, which the keyboard moves in. */
  sv.SearchBox = class {
    constructor(view) {
      this.view = view;
      this.items = [];
      this.at = -1;
      const id = (this.id = "sv-results");
      this.input = sv.element("input", {
        type: "search",
        class: "sv-search",
        placeholder: "Search",
        "aria-label": "Search by name, op:, pass: or shape:",
        title:
          "Search by name, operator, pass or shape. Narrow it with op:MatMul, name:, pass:fuse-gelu, shape:1x128, is:added, is:removed, is:altered",
        role: "combobox",
        "aria-expanded": "false",
        "aria-controls": id,
        "aria-autocomplete": "list",
        autocomplete: "off",
        spellcheck: "false",
        oninput: () => this.later(),
        onkeydown: (event) => this.key(event),
        onfocus: () => this.items.length && this.show(true),
      });
      this.list = sv.element("ul", {
        id,
        class: "sv-results",
        role: "listbox",
        "aria-label": "Results",
        tabindex: "-1",
      });
      this.note = sv.element("p", { class: "sv-results-note" });
      this.pop = sv.element("div", { class: "sv-results-pop sv-off" }, this.note, this.list);
      const hint = sv.element("kbd", { class: "sv-key", text: "/", "aria-hidden": "true" });
      this.element = sv.element("div", { class: "sv-searchbox" }, sv.icon("search"), this.input, hint, this.pop);
      this.element.addEventListener(
        "focusout",
        (event) => this.element.contains(event.relatedTarget) || this.show(false),
      );
      this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    }

    later() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.run(), this.view.model.n > 20000 ? 160 : 40);
    }

    run() {
      clearTimeout(this.timer);
      this.timer = 0;
      const query = this.input.value.trim();
      const { total, items } = (this.view.finder ??= new sv.Finder(this.view.scene)).find(query, LIMIT);
      this.items = items;
      this.at = -1;
      this.note.textContent =
        total > items.length
          ? `${items.length} of ${total.toLocaleString("en-US")} results`
          : sv.plural(total, "result");
      this.list.replaceChildren(...items.map((item, k) => this.row(item, k)));
      this.show(query !== "");
      if (query) this.view.announce(this.note.textContent);
    }

    row(item, k) {
      const { model, scene } = this.view;
      const row = sv.element("li", {
        role: "option",
        id: "sv-result-" + k,
        class: "sv-result " + sv.statusClass(scene.status[item]),
        "aria-selected": "false",
        onclick: () => this.choose(k),
      });
      row.append(sv.element("b", { text: model.label(item) }));
      const where =
        item < model.n
          ? sv.cut(model.strings[model.name[item]], 70)
          : sv.cut(model.strings[model.groupKind[item - model.n]], 20);
      row.append(
        sv.element("span", {
          text: model.isGroup(item) ? where + ", " + sv.plural(scene.counts[4 * (item - model.n)], "node") : where,
        }),
      );
      const note = sv.statusText(scene.status[item]);
      if (note) row.append(sv.element("em", { text: note }));
      return row;
    }

    show(isOpen) {
      this.pop.classList.toggle("sv-off", !isOpen);
      this.input.setAttribute("aria-expanded", String(isOpen));
      if (!isOpen) this.input.removeAttribute("aria-activedescendant");
    }

    key(event) {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
      // The keys move in the results of what is written now.
      if (step && this.timer) this.run();
      if (step && this.items.length) {
        event.preventDefault();
        this.show(true);
        this.mark(Math.max(0, Math.min(this.items.length - 1, this.at + step)));
      } else if (event.key === "Enter") {
        event.preventDefault();
        if (this.at < 0) this.run();
        if (this.items.length) this.choose(Math.max(0, this.at));
      } else if (event.key === "Escape") {
        event.stopPropagation();
        if (this.pop.classList.contains("sv-off")) this.view.stage.focus();
        this.show(false);
      }
    }

    mark(at) {
      if (this.at >= 0) this.list.children[this.at].setAttribute("aria-selected", "false");
      this.at = at;
      const row = this.list.children[at];
      row.setAttribute("aria-selected", "true");
      row.scrollIntoView({ block: "nearest" });
      this.input.setAttribute("aria-activedescendant", row.id);
    }

    choose(at) {
      this.mark(at);
      this.show(false);
      this.view.go(this.items[at]);
    }
  };

  /** Return what happened as a word, "" for nothing. */
  sv.statusText = function (status) {
    return (
      {
        [sv.ADDED]: "added",
        [sv.ALTERED]: "altered",
        [sv.REMOVED]: "removed",
        [sv.GONE]: "removed",
        [sv.UNBORN]: "in a later state",
      }[status] || ""
    );
  };

  sv.statusClass = function (status) {
    return (
      { [sv.ADDED]: "sv-added", [sv.ALTERED]: "sv-altered", [sv.REMOVED]: "sv-removed", [sv.GONE]: "sv-removed" }[
        status
      ] || ""
    );
  };
})(surgeryViewer);
