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
      const form = element("form", { class: "wb-recipes" }, element("span", { text: "Optimize with the recipe" }), this.recipe, add);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.bench.act({ act: "add", step: { use: this.recipe.value } });
      });
      this.about = element("p", { class: "note" });
      this.recipe.addEventListener("change", () => this.describe());
      byId("wb-whole").append(form, this.about, this.fold);
    }

    show() {
      const { recipes } = this.bench.state;
      if (!this.recipe.options.length) this.listRecipes(recipes);
      this.fill();
    }

    listRecipes(recipes) {
      for (const { name, about } of recipes)
        this.recipe.append(element("option", { value: name, text: name, "data-about": about, selected: name === "default" }));
      this.describe();
    }

    describe() {
      this.about.textContent = this.recipe.selectedOptions[0]?.dataset.about || "";
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
          const options = one.fields.map((option) => `${option.name} ${option.about} ${option.choices.join(" ")}`);
          form.dataset.words = [one.name, one.about, ...one.words, ...options].join(" ").toLowerCase();
          return form;
        }),
      );
      this.filter();
    }

    filter() {
      const text = this.search.value.toLowerCase().trim();
      const words = text.split(/\s+/);
      const forms = Array.from(this.list.children);
      // "half precision" is one of the words people use, without the space.
      const has = (known) => known.includes(words.join("")) || words.every((word) => known.includes(word));
      for (const form of forms) form.hidden = !has(form.dataset.words);
      this.none.textContent = forms.some((form) => !form.hidden) ? "" : "No pass has these words.";
    }
  }

  sv.WholeModel = WholeModel;
})(surgeryViewer);
