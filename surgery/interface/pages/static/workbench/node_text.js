// Nodes as ONNX text: a draft for a place at the selection, and where a mistake in it is.
(function (sv) {
  "use strict";

  const { element } = sv;

  const PLACES = [
    ["after", "after the selection"],
    ["before", "before the selected nodes only"],
    ["instead", "instead of the selected nodes"],
  ];

  /** What a form has for nodes as text, besides its fields. */
  class NodeText {
    constructor(bench, form, fields) {
      this.bench = bench;
      this.fields = Object.fromEntries(fields.map((field) => [field.option.name, field]));
      this.area = this.fields.text.input;
      this.note = element("ul", { class: "wb-mistakes", role: "alert" });
      this.area.setAttribute("aria-describedby", (this.note.id = "wb-mistakes"));
      this.area.closest("label").after(this.note);
      const place = element("select", { "data-place": "" });
      for (const [value, text] of PLACES) place.append(element("option", { value, text }));
      place.addEventListener("change", () => this.draft(place.value));
      form.prepend(element("label", {}, element("span", { text: "Place" }), place));
    }

    async draft(place) {
      const names = Array.from(this.bench.selection.chosen.keys());
      const [ok, found] = await sv.ask("draft", { names, place });
      if (!ok) return this.complain(found.error.message);
      for (const [name, field] of Object.entries(this.fields)) if (name !== "keeps") field.set(found[name]);
      this.complain("");
    }

    /** Show a complaint; a place in it leads to the text. */
    complain(message) {
      const found = /line (\d+), column (\d+): ([^\n]*)/.exec(message);
      const text = found ? found[0] : message;
      const items = text ? [found ? element("button", { type: "button", text, onclick: () => this.goTo(found) }) : text] : [];
      this.note.replaceChildren(...items.map((one) => element("li", {}, one)));
      this.area.setAttribute("aria-invalid", String(items.length > 0));
      if (found) this.goTo(found);
    }

    goTo([, line, column]) {
      const rows = this.area.value.split("\n");
      const start = rows.slice(0, line - 1).reduce((sum, row) => sum + row.length + 1, 0) + Number(column) - 1;
      const word = /^[\w.:]+|^./.exec(this.area.value.slice(start))?.[0].length || 0;
      this.area.focus();
      this.area.setSelectionRange(start, start + word);
    }
  }

  sv.NodeText = NodeText;
})(surgeryViewer);
