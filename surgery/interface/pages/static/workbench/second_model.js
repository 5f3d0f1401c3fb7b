// A second model, compared with the one that is edited.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  /** Shows the graph of both models in one, in the colors of changes, until one goes back. */
  class SecondModel {
    constructor(bench) {
      this.bench = bench;
      this.view = null;
      this.asked = 0;
      const form = byId("wb-second");
      form.addEventListener("submit", (event) => this.compare(event));
      form.elements.path.addEventListener("focus", () => this.list());
      byId("wb-second-back").addEventListener("click", () => this.back());
    }

    async list() {
      const [ok, found] = await sv.ask("compare", {});
      if (ok) byId("wb-second-files").replaceChildren(...found.models.map((value) => element("option", { value })));
    }

    async compare(event) {
      event.preventDefault();
      const number = ++this.asked;
      byId("wb-message").replaceChildren();
      byId("wb-second-body").replaceChildren(element("p", { class: "note", text: "Comparing, and running both…" }));
      const [ok, found] = await sv.ask("compare", { path: event.target.elements.path.value });
      if (number !== this.asked) return;
      if (!ok) {
        this.back();
        return this.bench.tell(found.error.message);
      }
      byId("wb-second-body").replaceChildren(...this.summary(found));
      byId("wb-second-back").hidden = false;
      byId("graph-view").hidden = true;
      byId("graph-second").hidden = false;
      history.replaceState(null, "", location.pathname);
      this.view = sv.mount(byId("graph-second"), found.drawing, { side: false });
      document.body.dataset.compared = found.path;
    }

    /** Show the model that is edited again. */
    back() {
      this.asked += 1;
      byId("wb-second-body").replaceChildren();
      byId("wb-second-back").hidden = true;
      if (byId("graph-second").hidden) return;
      this.view?.timeline?.run?.(false);
      this.view = null;
      byId("graph-second").replaceChildren();
      byId("graph-second").hidden = true;
      byId("graph-view").hidden = false;
      history.replaceState(null, "", location.pathname);
      delete document.body.dataset.compared;
      this.bench.draw();
    }

    summary(found) {
      const { only_here, only_there, altered, signature, agreement } = found;
      const counts = `${sv.plural(only_here, "node")} only in this model, ${sv.plural(only_there, "node")} only in ${sv.cut(found.path, 60)}, ${altered} altered.`;
      const lines = [element("p", { text: counts })];
      for (const text of signature.slice(0, 8)) lines.push(element("p", { class: "mono", text: sv.cut(text, 200) }));
      const verdict = `Outputs: ${agreement.status}${agreement.sets ? " on " + sv.plural(agreement.sets, "set") + " of inputs" : ""}.`;
      lines.push(element("p", { class: agreement.ok ? "wb-good" : "wb-bad" }, element("b", { text: verdict })));
      if (agreement.message) lines.push(element("p", { text: sv.cut(agreement.message, 400) }));
      if (agreement.outputs.length) lines.push(this.outputs(agreement.outputs));
      return lines;
    }

    outputs(outputs) {
      const head = ["Output", "Differ", "Of the tolerance"].map((text) => element("th", { scope: "col", text }));
      const rows = outputs.map(({ output, elements, equal, largest }) =>
        element(
          "tr",
          {},
          element("th", { scope: "row", text: sv.cut(output, 60) }),
          element("td", { text: `${(elements - equal).toLocaleString("en-US")} of ${elements.toLocaleString("en-US")}` }),
          element("td", { text: typeof largest === "number" ? sv.number(100 * largest) + " %" : largest }),
        ),
      );
      const table = element("table", { class: "wb-table" });
      table.append(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
      return table;
    }
  }

  sv.SecondModel = SecondModel;
})(surgeryViewer);
