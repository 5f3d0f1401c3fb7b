// What of the selection can be changed in place.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  /** Fields that change a property when Enter is pressed or the field is left, and buttons for whole actions. */
  class Properties {
    constructor(bench) {
      this.bench = bench;
      this.asked = 0;
    }

    async show() {
      const names = Array.from(this.bench.selection.chosen.keys());
      const number = ++this.asked;
      byId("wb-properties").replaceChildren();
      if (!names.length) return;
      const [ok, found] = await sv.ask("properties", { names });
      if (number !== this.asked || !ok) return;
      const fields = element("div", { class: "wb-properties" });
      fields.append(...found.filter((one) => one.value !== null).map((one) => this.field(one, names)));
      const actions = element("div", { class: "wb-buttons" });
      for (const one of found.filter((one) => one.value === null)) {
        const onclick = () => this.bench.act({ act: "set", names, key: one.key });
        actions.append(element("button", { type: "button", text: one.label, "data-property": one.key, onclick }));
      }
      byId("wb-properties").replaceChildren(fields, actions);
    }

    field(one, names) {
      const input = element("input", { value: one.value, placeholder: one.hint, "data-property": one.key });
      Object.assign(input, { autocomplete: "off", spellcheck: false, title: one.hint });
      input.addEventListener("change", () => this.set(one, names, input));
      input.addEventListener("keydown", (event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        input.value = one.value;
      });
      return element("label", {}, element("span", { text: one.label }), input);
    }

    async set(one, names, input) {
      const value = input.value.trim();
      if (value === one.value) return;
      // What has a new name stays selected.
      const isRenamed = one.key === "name" || one.key === "tensor:" + names[0];
      const isDone = await this.bench.act({ act: "set", names, key: one.key, value }, isRenamed ? [value] : names);
      if (!isDone) input.value = one.value;
    }
  }

  sv.Properties = Properties;
})(surgeryViewer);
