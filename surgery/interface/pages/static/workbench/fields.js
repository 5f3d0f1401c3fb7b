// The fields of a form, by the kind of the option; each knows its value as a recipe has it.
(function (sv) {
  "use strict";

  const { element } = sv;

  const isEmpty = (value) => value === null || value === undefined || value === "";

  /** Return names as lines, or whatever else selects nodes as on one line of a recipe. */
  function lines(value) {
    if (isEmpty(value)) return "";
    if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value.join("\n");
    return typeof value === "string" ? value : sv.flow.show(value);
  }

  function named(text) {
    if (/^[[{]/.test(text)) return sv.flow.parse(text);
    const names = text.split("\n").map((line) => line.trim()).filter(Boolean);
    return names.length === 1 ? names[0] : names;
  }

  /** One field: `node` is what the form has, `value` undefined where nothing is given. */
  class Field {
    constructor(option) {
      this.option = option;
      this.first = isEmpty(option.value) ? "" : this.shown(option.value);
      this.input = this.make();
      this.input.name = option.name;
      this.write(this.first);
      this.node = this.input;
      this.isGroup = false;
    }

    make() {
      const { required } = this.option;
      return element("input", { required, autocomplete: "off", spellcheck: "false" });
    }

    shown(value) {
      return typeof value === "string" ? value : sv.flow.show(value);
    }

    write(text) {
      this.input.value = text;
    }

    read(text) {
      return sv.flow.parse(text);
    }

    /** Fill in a value as a recipe has it. */
    set(value) {
      this.write(isEmpty(value) ? "" : this.shown(value));
    }

    /** Return the value; undefined where it is the default, or nothing. */
    get value() {
      const text = this.input.value;
      if (!text.trim() || (text === this.first && !this.option.filled)) return undefined;
      return this.read(text);
    }
  }

  /** A list, whose brackets may be missing; where one value is also allowed, a text without a comma is one. */
  class List extends Field {
    read(text) {
      if (/^\s*[[{]/.test(text)) return sv.flow.parse(text);
      return text.includes(",") || this.option.kind === "list" ? sv.flow.parse(`[${text}]`) : sv.flow.parse(text);
    }
  }

  class TextField extends Field {
    read(text) {
      return text.trim();
    }
  }

  class Choice extends Field {
    make() {
      const { required } = this.option;
      const select = element("select", { required });
      const choices = [...(isEmpty(this.option.value) ? [""] : []), ...this.option.choices];
      for (const value of choices) select.append(element("option", { value, text: value || (required ? "(choose)" : "(default)") }));
      return select;
    }

    read(text) {
      return this.option.choices.join() === "true,false" ? text === "true" : text;
    }
  }

  /** Several lines: names, or ONNX text. */
  class Lines extends Field {
    make() {
      const { required, kind } = this.option;
      const area = element("textarea", { required, spellcheck: "false", autocapitalize: "off" });
      const most = kind === "code" ? 12 : 6;
      this.grow = () => (area.rows = Math.min(most, Math.max(kind === "code" ? 3 : 1, area.value.split("\n").length)));
      area.addEventListener("input", this.grow);
      area.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        area.form.requestSubmit();
      });
      return area;
    }

    write(text) {
      super.write(text);
      this.grow();
    }

    shown(value) {
      return this.option.kind === "code" ? value : lines(value);
    }

    read(text) {
      if (this.option.kind === "code") return text.replace(/\s+$/, "");
      const found = named(text.trim());
      return this.option.kind === "names" && typeof found === "string" ? found.split(/\s*,\s*/) : found;
    }
  }

  /** A field of several inputs, with a name for all of them. */
  class Group {
    constructor(option) {
      this.option = option;
      this.isGroup = true;
      this.node = element("fieldset", { class: "wb-group", "data-option": option.name });
      this.fill(option.value);
      this.first = JSON.stringify(this.given());
    }

    set(value) {
      this.fill(value);
    }

    get value() {
      const given = this.given();
      if (given === undefined || (JSON.stringify(given) === this.first && !this.option.filled)) return undefined;
      return given;
    }
  }

  /** A mapping as rows of a name and a value. */
  class Pairs extends Group {
    fill(value) {
      const add = element("button", { type: "button", text: "Add a row", onclick: () => this.row("", undefined).focus() });
      add.setAttribute("aria-label", `Add a row: ${this.option.name}`);
      this.rows = element("div", { class: "wb-rows" });
      this.node.replaceChildren(this.rows, add);
      const pairs = Object.entries(value || {});
      for (const [name, item] of pairs) this.row(name, item);
    }

    row(name, item) {
      const label = `${this.option.name}, row ${this.rows.children.length + 1}`;
      const input = (part, value) =>
        element("input", { value, autocomplete: "off", spellcheck: "false", "data-part": part, "aria-label": `${label}: ${part}` });
      const [key, value] = [input("name", name), input("value", item === undefined ? "" : this.shown(item))];
      const remove = element("button", { type: "button", text: "×", "aria-label": `Remove ${label}` });
      const row = element("div", { class: "wb-row" }, key, value, remove);
      remove.addEventListener("click", () => row.remove());
      this.rows.append(row);
      return key;
    }

    shown(item) {
      if (this.option.kind === "lists by name" && Array.isArray(item)) return item.map(sv.flow.show).join(", ");
      return this.option.kind === "texts by name" && typeof item === "string" ? item : sv.flow.show(item);
    }

    item(text) {
      if (this.option.kind === "lists by name" && !text.startsWith("[")) return sv.flow.parse(`[${text}]`);
      return this.option.kind === "texts by name" ? text : sv.flow.parse(text);
    }

    given() {
      const found = {};
      for (const row of this.rows.children) {
        const [key, value] = row.querySelectorAll("input");
        if (key.value.trim()) found[key.value.trim()] = this.item(value.value.trim());
      }
      return Object.keys(found).length ? found : undefined;
    }
  }

  /** Several of a few choices. */
  class Several extends Group {
    fill(value) {
      this.node.replaceChildren(
        ...this.option.choices.map((choice) => {
          const box = element("input", { type: "checkbox", value: choice });
          box.checked = (value || []).includes(choice);
          return element("label", { class: "wb-check" }, box, choice);
        }),
      );
    }

    given() {
      return Array.from(this.node.querySelectorAll("input:checked"), (box) => box.value);
    }
  }

  /** A rule: what it matches, and what it emits. */
  class RuleField extends Group {
    fill(value) {
      const area = (part) => {
        const made = element("textarea", { rows: 3, spellcheck: "false", autocapitalize: "off", "data-part": part });
        made.value = value?.[part] || "";
        return element("label", {}, element("span", { text: part }), made);
      };
      this.node.replaceChildren(area("match"), area("emit"));
    }

    given() {
      const [match, emit] = Array.from(this.node.querySelectorAll("textarea"), (area) => area.value.trim());
      return match || emit ? { match, emit } : undefined;
    }
  }

  const KINDS = {
    choice: Choice,
    list: List,
    "value or list": List,
    several: Several,
    text: TextField,
    code: Lines,
    rule: RuleField,
    nodes: Lines,
    tensors: Lines,
    names: Lines,
    "texts by name": Pairs,
    "lists by name": Pairs,
    "values by name": Pairs,
  };

  /** Return the field of an option. */
  sv.fieldOf = (option) => new (KINDS[option.kind] || Field)(option);
})(surgeryViewer);
