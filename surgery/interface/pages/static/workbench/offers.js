// What can be done with the selection.
(function (sv) {
  "use strict";

  const { element, byId } = sv;
  const MOST_CHIPS = 12;
  const MOST_OFFERS = 8;

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
      for (const { count, names: alike } of this.bench.selection.repeats()) {
        const text = `The same in all ${count} instances`;
        actions.append(element("button", { type: "button", text, onclick: () => this.bench.selection.only(alike) }));
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
      const isOfNodes = Array.from(this.bench.selection.chosen.values()).some((row) => row >= 0 && !this.bench.view.model.isPort(row));
      // A conversion of everything but some nodes is for these, too.
      const leaves = (one) => isOfNodes && one.fields.some(({ name, kind }) => name === "keep" && kind === "nodes");
      const isFor = (one) => one.for_selection || leaves(one);
      const can = offers.filter((one) => one.sites > 0 || (one.sites === null && isFor(one)));
      const others = offers.filter((one) => one.sites === null && !isFor(one));
      // Those that nearly fit say why they do not; the others have no place anywhere near.
      const not = offers.filter((one) => one.sites === 0);
      not.sort((one, other) => Boolean(other.why_not) - Boolean(one.why_not));
      const box = byId("wb-offers");
      for (const one of can.slice(0, MOST_OFFERS)) box.append(this.offerForm(one));
      const more = can.slice(MOST_OFFERS);
      if (more.length) box.append(this.folded(`Selection: ${more.length} more`, more, (one) => this.offerForm(one)));
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
      const about = element("small", { class: "wb-about", text: sv.cut(one.about, 110) });
      const head = element("summary", {}, element("b", { text: one.name }), element("small", { text: places }), about);
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
      if (one.why_not) form.append(element("p", { text: `As it is filled in: ${one.why_not}.` }));
      const fields = one.fields.map((option) => sv.fieldOf(option));
      form.append(...this.where(fields));
      const isFirst = ({ option }) => option.required || option.filled;
      form.append(...fields.filter(isFirst).map((field) => this.label(field)));
      const rest = fields.filter((field) => !isFirst(field));
      if (rest.length) {
        const more = element("details", { class: "wb-more" }, element("summary", { text: "More options" }));
        more.append(...rest.map((field) => this.label(field)));
        form.append(more);
      }
      form.append(element("button", { type: "submit", text: `Add ${one.name}` }));
      const text = one.fields.some((option) => option.kind === "code") ? new sv.NodeText(this.bench, form, fields) : null;
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        const options = {};
        for (const field of fields) if (field.value !== undefined) options[field.option.name] = field.value;
        const step = Object.keys(options).length ? { [one.name]: options } : one.name;
        if (!(await this.bench.act({ act: "add", step }))) text?.complain(this.bench.complaint);
      });
      return form;
    }

    /** Return the choice of a pass that converts some nodes and leaves others: here, not here, or everywhere. */
    where(fields) {
      const field = (name) => fields.find(({ option }) => option.name === name && option.kind === "nodes");
      const [here, not] = [field("nodes"), field("exclude") || field("keep")];
      const names = Array.from(this.bench.selection.chosen).filter(([, row]) => row >= 0 && !this.bench.view.model.isPort(row)).map(([name]) => name);
      if (!not || !names.length) return [];
      const choices = [["all", "all nodes"], ["not", "all but the selected nodes"]];
      if (here) choices.unshift(["here", "the selected nodes only"]);
      const select = element("select", { "data-where": "" });
      for (const [value, text] of choices) select.append(element("option", { value, text }));
      select.addEventListener("change", () => {
        here?.set(select.value === "here" ? names : null);
        not.set(select.value === "not" ? names : null);
      });
      return [element("label", {}, element("span", { text: "Where" }), select)];
    }

    /** Return a field with its name and description; one that selects nodes or tensors can take what is selected. */
    label(field) {
      const { name, required, type, about, kind } = field.option;
      const parts = [
        element(field.isGroup ? "legend" : "span", { text: name + (required ? " (required)" : "") }),
        field.node,
        element("small", { text: `${type}${about ? ". " + about : ""}` }),
      ];
      if (field.isGroup) {
        field.node.prepend(parts[0]);
        field.node.append(parts[2]);
        return field.node;
      }
      const label = element("label", {}, ...parts);
      if (kind !== "nodes" && kind !== "tensors") return label;
      const take = () => {
        field.set(Array.from(this.bench.selection.chosen.keys()));
        field.input.focus();
      };
      const button = element("button", { type: "button", text: "Use the selection", onclick: take });
      button.setAttribute("aria-label", `Use the selection: ${name}`);
      return element("div", { class: "wb-field" }, label, button);
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
