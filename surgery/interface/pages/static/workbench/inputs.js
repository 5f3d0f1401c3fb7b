// The inputs on which values are looked at: those of the verification, or one's own.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  /** The choice of inputs, which holds for all looks until another one. */
  class Inputs {
    constructor(bench) {
      this.bench = bench;
      byId("wb-inputs").addEventListener("toggle", () => this.ask({}));
      byId("wb-inputs-file").addEventListener("submit", (event) => this.file(event));
      byId("wb-inputs-tokens").addEventListener("submit", (event) => this.tokens(event));
      byId("wb-inputs-back").addEventListener("click", () => this.choose({ kind: "verification" }));
    }

    file(event) {
      event.preventDefault();
      const { path, mean, std, size, layout } = event.target.elements;
      const images = {};
      for (const field of [mean, std, size]) {
        const numbers = field.value.split(/[\s,x]+/).filter(Boolean).map(Number);
        if (numbers.length) images[field.name] = numbers;
      }
      if (layout.value) images.layout = layout.value;
      this.choose({ kind: "file", path: path.value, images });
    }

    tokens(event) {
      event.preventDefault();
      this.choose({ kind: "tokens", text: event.target.elements.text.value });
    }

    async choose(given) {
      byId("wb-message").replaceChildren();
      if (await this.ask(given)) this.bench.values.show(this.bench.values.tensor);
    }

    /** Ask the server; return whether it agreed. */
    async ask(given) {
      const [ok, found] = await sv.ask("inputs", given);
      if (!ok) {
        this.bench.tell(found.error.message);
        return false;
      }
      const { title, can_verify, files } = found;
      byId("wb-inputs-files").replaceChildren(...files.map((value) => element("option", { value })));
      byId("wb-inputs-now").textContent = title
        ? `Values are looked at on ${sv.cut(title, 80)}.`
        : "Values are looked at on the inputs that steps are verified on.";
      byId("wb-inputs-back").hidden = !title;
      byId("wb-inputs-verify").hidden = !can_verify;
      return true;
    }
  }

  sv.Inputs = Inputs;
})(surgeryViewer);
