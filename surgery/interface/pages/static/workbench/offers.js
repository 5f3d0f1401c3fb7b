// What can be done with the selection.
(function (sv) {
  "use strict";

  const { element, byId } = sv;
  const MOST_CHIPS = 12;
  const MOST_OFFERS = 40;

  /** What can be done with the selection, as forms, and why the rest cannot. */
  class Offers {
    constructor(bench) {
      this.bench = bench;
      this.asked = 0;
    }

    async show() {
      this.bench.properties.show();
      const names = Array.from(this.bench.selection.chosen.keys());
      const number = ++this.asked;
      byId("wb-hint").hidden = names.length > 0;
      const chips = element("ul", { class: "wb-chips", "aria-label": "Selected" });
      for (const name of names.slice(0, MOST_CHIPS)) chips.append(element("li", { text: sv.cut(name, 70) }));
      if (names.length > MOST_CHIPS) chips.append(element("li", { text: `and ${names.length - MOST_CHIPS} more` }));
      const actions = element("div", { class: "wb-buttons" });
      for (const tensor of this.bench.selection.tensors().slice(0, 4)) {
        const text = "Tensor " + sv.cut(tensor, 36);
        actions.append(element("button", { type: "button", text, onclick: () => this.bench.selection.chooseTensor(tensor) }));
      }
      if (names.length === 1) {
        const look = () => this.bench.values.show(this.bench.selection.tensors()[0] || names[0]);
        actions.append(element("button", { type: "button", text: "Look at values", onclick: look }));
        const { panel } = this.bench.view;
        const toggle = () => {
          this.bench.isDetailed = panel.isOn = !panel.isOn;
          panel.show(this.bench.view.selected);
          this.bench.view.resize();
        };
        actions.append(element("button", { type: "button", text: "Details", onclick: toggle }));
      }
      byId("wb-selection").replaceChildren(...(names.length ? [chips, actions] : []));
      byId("wb-offers").replaceChildren();
      if (!names.length) return;
      const [ok, offers] = await sv.ask("offers", { names });
      if (number !== this.asked) return;
      if (!ok) return byId("wb-offers").replaceChildren(element("p", { class: "note", text: offers.error.message }));
      this.list(offers, names);
    }

    list(offers, names) {
      const can = offers.filter((one) => one.sites > 0 || (one.sites === null && one.for_selection));
      const others = offers.filter((one) => one.sites === null && !one.for_selection);
      const not = offers.filter((one) => one.sites === 0);
      const box = byId("wb-offers");
      for (const one of can.slice(0, MOST_OFFERS)) box.append(this.offerForm(one));
      box.append(this.folded(`Whole model: ${others.length} more`, others, (one) => this.offerForm(one)));
      box.append(this.folded(`Not here: ${not.length}, and why`, not, (one) => this.refusal(one, names)));
    }

    /** Return a fold whose content is made when it is opened. */
    folded(title, items, make) {
      const head = element("summary", { text: title });
      const fold = element("details", { class: "wb-more" }, head);
      head.addEventListener("click", () => {
        if (fold.children.length === 1) fold.append(...items.map(make));
      });
      return fold;
    }

    offerForm(one) {
      const places = one.sites ? " " + sv.plural(one.sites, "place") : "";
      const head = element("summary", {}, element("b", { text: one.name }), element("small", { text: places }));
      const fold = element("details", { "data-pass": one.name }, head);
      head.addEventListener("click", () => {
        if (fold.children.length === 1) fold.append(this.form(one));
      });
      return fold;
    }

    form(one) {
      const form = element("form", { class: "wb-form" }, element("p", { text: one.about }));
      if (one.sites && !one.for_selection)
        form.append(element("p", { text: "It changes all places in the model, not only the selected ones." }));
      if (one.changes_results) form.append(element("p", { text: "It may change the results on purpose." }));
      const inputs = one.fields.map((field) => [field, this.input(field)]);
      const [first, rest] = [inputs.filter(([field]) => field.required || field.filled), []];
      for (const pair of inputs) if (!first.includes(pair)) rest.push(pair);
      const label = ([field, input]) => this.label(field, input);
      form.append(...first.map(label));
      if (rest.length) {
        const more = element("details", { class: "wb-more" }, element("summary", { text: "More options" }));
        more.append(...rest.map(label));
        form.append(more);
      }
      form.append(element("button", { type: "submit", text: `Add ${one.name}` }));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const options = {};
        for (const [field, input] of inputs) {
          const given = this.read(field, input);
          if (given !== undefined) options[field.name] = given;
        }
        const step = Object.keys(options).length ? { [one.name]: options } : one.name;
        this.bench.act({ act: "add", step });
      });
      return form;
    }

    /** Return a field with its name and description; one that selects nodes or tensors can take what is selected. */
    label(field, input) {
      const label = element(
        "label",
        {},
        element("span", { text: field.name + (field.required ? " (required)" : "") }),
        input,
        element("small", { text: `${field.type}${field.about ? ". " + field.about : ""}` }),
      );
      if (!/^(node selector|tensor names)/.test(field.type)) return label;
      const take = () => {
        const names = Array.from(this.bench.selection.chosen.keys());
        input.value = names.length === 1 ? names[0] : JSON.stringify(names);
        input.focus();
      };
      const button = element("button", { type: "button", text: "Use the selection", onclick: take });
      button.setAttribute("aria-label", `Use the selection: ${field.name}`);
      return element("div", { class: "wb-field" }, label, button);
    }

    input(field) {
      const text = field.value === null || field.value === undefined ? "" : JSON.stringify(field.value);
      const shown = typeof field.value === "string" ? field.value : text;
      if (field.choices.length) {
        const select = element("select", { name: field.name });
        const none = field.value === null ? [""] : [];
        for (const choice of [...none, ...field.choices])
          select.append(element("option", { value: choice, text: choice || "(default)" }));
        select.value = shown;
        select.dataset.first = shown;
        return select;
      }
      const input = element("input", { name: field.name, value: shown, required: field.required, autocomplete: "off" });
      input.dataset.first = field.filled ? "\u0000" : shown;
      return input;
    }

    /** Return the value of a field as in a recipe; nothing where it is as it was and not from the selection. */
    read(field, input) {
      const text = input.value.trim();
      if (text === input.dataset.first || text === "") return undefined;
      if (field.choices.includes("true") && field.choices.length === 2) return text === "true";
      if (field.type === "str" || field.choices.length) return text;
      try {
        return JSON.parse(text);
      } catch {
        return text;
      }
    }

    refusal(one, names) {
      const text = element("p", { class: "note", text: one.why_not || "It finds no place here." });
      const box = element("details", { "data-pass": one.name }, element("summary", { text: one.name }), text);
      const why = element("button", { type: "button", text: "Why not?" });
      why.addEventListener("click", async () => {
        why.disabled = true;
        const [ok, lines] = await sv.ask("why", { pass: one.name, node: names[0], options: {} });
        text.textContent = ok ? lines.join("\n") : lines.error.message;
        text.setAttribute("role", "status");
        why.remove();
      });
      box.append(element("div", { class: "wb-form" }, text, why));
      return box;
    }
  }

  sv.Offers = Offers;
})(surgeryViewer);
