// The recipe as YAML.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  /** The recipe as text, and the places of its mistakes. */
  class RecipeText {
    constructor(bench) {
      this.bench = bench;
      this.completion = new sv.Completion(byId("wb-recipe"), byId("wb-complete"), byId("wb-complete-count"));
      byId("wb-write").addEventListener("click", () => this.write());
    }

    write() {
      const text = byId("wb-recipe").value;
      this.bench.act({ act: "write", text }).then((isDone) => {
        if (!isDone) byId("wb-recipe").value = text;
      });
    }

    goTo(line) {
      const area = byId("wb-recipe");
      const before = area.value.split("\n").slice(0, line - 1);
      const start = before.join("\n").length + (before.length ? 1 : 0);
      area.focus();
      area.setSelectionRange(start, start + (area.value.split("\n")[line - 1] || "").length);
    }

    /** List mistakes; each leads to its line. */
    mistakes(problems) {
      const list = byId("wb-problems");
      list.replaceChildren(
        ...problems.map((one) =>
          element(
            "li",
            {},
            element("button", {
              type: "button",
              text: `line ${one.line}, column ${one.column}: ${one.message}`,
              onclick: () => this.goTo(one.line),
            }),
          ),
        ),
      );
    }
  }

  sv.RecipeText = RecipeText;
})(surgeryViewer);
