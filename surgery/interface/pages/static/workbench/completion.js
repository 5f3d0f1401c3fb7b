// Suggestions in the recipe: passes, options and values, from the schema of recipes.
(function (sv) {
  "use strict";

  const { element } = sv;
  const MOST = 60;

  /** The schema of recipes, as what may stand at a place. */
  class Schema {
    constructor(root) {
      this.root = root;
    }

    /** Return all that a part stands for: itself, what it refers to, and its alternatives. */
    all(part) {
      const found = [];
      const pending = [part];
      while (pending.length) {
        const one = pending.pop();
        if (!one || typeof one !== "object" || found.includes(one)) continue;
        found.push(one);
        if (one.$ref) pending.push(this.root.$defs[one.$ref.replace("#/$defs/", "")]);
        pending.push(...(one.anyOf || []), ...(one.oneOf || []), ...(one.allOf || []), one.then, one.else);
      }
      return found;
    }

    at(path) {
      let parts = this.all(this.root);
      for (const key of path) parts = parts.flatMap((one) => this.inside(one, key)).flatMap((one) => this.all(one));
      return parts;
    }

    inside(part, key) {
      if (key === 0) return part.items ? [part.items] : [];
      if (part.properties && Object.hasOwn(part.properties, key)) return [part.properties[key]];
      return part.additionalProperties && typeof part.additionalProperties === "object" ? [part.additionalProperties] : [];
    }

    /** Return the suggestions for a place: each with its text, what follows it, and a description. */
    suggestions(place) {
      const parts = this.at(place.path);
      const found = new Map();
      const put = (text, after, about) => found.has(text) || found.set(text, { text, after, about: about || "" });
      const about = (name) => this.about(name);
      if (place.isValue)
        for (const part of parts) {
          for (const value of part.enum || []) put(String(value), "", about(value));
          if (typeof part.const === "string") put(part.const, "", "");
          if (part.type === "boolean" || part.type?.includes?.("boolean")) ["true", "false"].forEach((one) => put(one, "", ""));
        }
      if (place.isKey)
        for (const part of parts)
          for (const [key, value] of Object.entries(part.properties || {})) put(key, ": ", value.description);
      return Array.from(found.values());
    }

    about(name) {
      this.passes ||= this.root.$defs["pass-short"].properties;
      return Object.hasOwn(this.passes, name) ? this.passes[name].description : "";
    }
  }

  /** A list of suggestions below the cursor of a text area. */
  class Completion {
    constructor(area, list, count) {
      Object.assign(this, { area, list, count, items: [], chosen: 0, schema: null, place: null });
      area.addEventListener("focus", () => this.load(), { once: true });
      area.addEventListener("input", () => this.update(false));
      area.addEventListener("keydown", (event) => this.key(event));
      area.addEventListener("blur", () => this.close());
      area.addEventListener("click", () => this.close());
      area.addEventListener("scroll", () => this.close());
      // The list has no scroll bar, which would have to be reached with the keyboard: the arrow keys move in it.
      list.addEventListener("wheel", (event) => {
        event.preventDefault();
        list.scrollTop += event.deltaY;
      });
      list.addEventListener("mousedown", (event) => {
        event.preventDefault();
        const option = event.target.closest("[role=option]");
        if (option) this.accept(Number(option.dataset.index));
      });
    }

    async load() {
      const [ok, root] = await sv.ask("schema");
      if (ok) this.schema = new Schema(root);
    }

    get isOpen() {
      return !this.list.hidden;
    }

    update(isAsked) {
      const { selectionStart: at, selectionEnd: end, value } = this.area;
      this.place = this.schema && at === end && /^[^\S\n]*(\n|$|[,}\]])/.test(value.slice(at)) ? sv.yamlPlace(value, at) : null;
      if (!this.place || (!isAsked && !this.place.word && !/(- |[{,:] ?)$/.test(value.slice(0, at)))) return this.close();
      const word = this.place.word.toLowerCase();
      const fits = this.schema.suggestions(this.place).filter((one) => one.text.toLowerCase().includes(word));
      const rank = (one) => (one.text.toLowerCase().startsWith(word) ? 0 : 1);
      fits.sort((a, b) => rank(a) - rank(b) || (a.text < b.text ? -1 : 1));
      if (!fits.length || (fits.length === 1 && fits[0].text === this.place.word)) return this.close();
      this.show(fits.slice(0, MOST));
    }

    show(items) {
      this.items = items;
      this.list.replaceChildren(
        ...items.map((one, index) =>
          element(
            "li",
            { role: "option", id: `wb-complete-${index}`, "data-index": index, "aria-selected": "false" },
            element("span", { text: one.text }),
            element("small", { text: sv.cut(one.about, 90) }),
          ),
        ),
      );
      this.list.hidden = false;
      this.position();
      this.choose(0);
      this.count.textContent = sv.plural(items.length, "suggestion");
    }

    /** Put the list below the cursor: lines are not wrapped, and all letters are as wide. */
    position() {
      const { area, list } = this;
      const style = getComputedStyle(area);
      const before = area.value.slice(0, area.selectionStart - this.place.word.length).split("\n");
      const context = document.createElement("canvas").getContext("2d");
      context.font = style.font;
      const left = parseFloat(style.paddingLeft) + context.measureText(before[before.length - 1]).width - area.scrollLeft;
      const top = parseFloat(style.paddingTop) + before.length * parseFloat(style.lineHeight) - area.scrollTop;
      list.style.left = `${Math.max(0, Math.min(left, area.clientWidth - list.offsetWidth))}px`;
      list.style.top = `${Math.min(top, area.offsetHeight) + 2}px`;
    }

    choose(index) {
      this.list.children[this.chosen]?.setAttribute("aria-selected", "false");
      this.chosen = (index + this.items.length) % this.items.length;
      const option = this.list.children[this.chosen];
      option.setAttribute("aria-selected", "true");
      option.scrollIntoView({ block: "nearest" });
      this.area.setAttribute("aria-activedescendant", option.id);
    }

    close() {
      this.list.hidden = true;
      this.area.removeAttribute("aria-activedescendant");
      this.count.textContent = "";
    }

    key(event) {
      if (event.key === " " && event.ctrlKey) {
        event.preventDefault();
        return this.update(true);
      }
      if (!this.isOpen || event.ctrlKey || event.metaKey || event.altKey) return undefined;
      const acts = {
        ArrowDown: () => this.choose(this.chosen + 1),
        ArrowUp: () => this.choose(this.chosen - 1),
        Enter: () => this.accept(this.chosen),
        Tab: () => this.accept(this.chosen),
        Escape: () => this.close(),
      };
      if (!Object.hasOwn(acts, event.key)) {
        if (/^(Arrow|Home|End|Page)/.test(event.key)) this.close();
        return undefined;
      }
      event.preventDefault();
      event.stopPropagation();
      acts[event.key]();
      return undefined;
    }

    /** Type a suggestion in place of the word, as the keyboard would, so that it can be undone. */
    accept(index) {
      const { area, place } = this;
      const { text, after } = this.items[index];
      const end = area.selectionStart;
      area.focus();
      area.setSelectionRange(end - place.word.length, end);
      const typed = text + after;
      if (!document.execCommand("insertText", false, typed)) area.setRangeText(typed, end - place.word.length, end, "end");
      if (after) this.update(false);
      else this.close();
    }
  }

  sv.Completion = Completion;
})(surgeryViewer);
