// What can be done with the whole model, whatever is selected.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  /** The recipes whose steps can be added, and every pass, found by name or description. */
  class WholeModel {
    constructor(bench) {
      this.bench = bench;
      this.version = -1;
      this.list = element("div", {});
      this.search = element("input", { type: "search", placeholder: "name or purpose", "aria-label": "Find a pass" });
      this.search.addEventListener("input", () => this.filter());
      const head = element("summary", { text: "Add a pass" });
      this.none = element("p", { class: "note", role: "status" });
      this.fold = element("details", { class: "wb-more" }, head, this.search, this.none, this.list);
      this.fold.addEventListener("toggle", () => this.fold.open && this.fill());
      this.recipe = element("select", { "aria-label": "Recipe" });
      const add = element("button", { type: "submit", text: "Add" });
      const form = element("form", { class: "wb-recipes" }, element("span", { text: "Steps of the recipe" }), this.recipe, add);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.bench.act({ act: "add", step: { use: this.recipe.value } });
      });
      byId("wb-whole").append(form, this.fold);
    }

    show() {
      const { recipes } = this.bench.state;
      if (!this.recipe.options.length)
        this.recipe.append(...recipes.map((name) => element("option", { value: name, text: name, selected: name === "default" })));
      this.fill();
    }

    /** List the passes anew when the model has changed and the list is open. */
    async fill() {
      const { version } = this.bench.state;
      if (!this.fold.open || this.version === version) return;
      this.version = version;
      const [ok, offers] = await sv.ask("offers", { names: [] });
      if (!ok) return this.list.replaceChildren(element("p", { class: "note", text: offers.error.message }));
      offers.sort((one, other) => one.name.localeCompare(other.name));
      this.list.replaceChildren(
        ...offers.map((one) => {
          const form = this.bench.offers.offerForm(one);
          form.dataset.words = `${one.name} ${one.about}`.toLowerCase();
          return form;
        }),
      );
      this.filter();
    }

    filter() {
      const words = this.search.value.toLowerCase().split(/\s+/);
      const forms = Array.from(this.list.children);
      for (const form of forms) form.hidden = !words.every((word) => form.dataset.words.includes(word));
      this.none.textContent = forms.some((form) => !form.hidden) ? "" : "No pass has these words.";
    }
  }

  sv.WholeModel = WholeModel;
})(surgeryViewer);
