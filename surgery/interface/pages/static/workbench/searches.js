// Searches that take many runs: which part of a refused step is wrong, and which step changes an output.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  /** The searches, one at a time, each with its progress and a button that stops it. */
  class Searches {
    constructor(bench) {
      this.bench = bench;
      this.line = null;
      byId("wb-search").querySelector("form").addEventListener("submit", (event) => this.changes(event));
    }

    show() {
      const { steps, outputs } = this.bench.state;
      const box = byId("wb-search");
      box.hidden = !steps.some((step) => step.status === "committed");
      const select = box.querySelector("select");
      const chosen = select.value;
      select.replaceChildren(...outputs.map((value) => element("option", { value, text: sv.cut(value, 60) })));
      if (outputs.includes(chosen)) select.value = chosen;
      byId("wb-found").replaceChildren();
    }

    progress(text) {
      if (this.line) this.line.textContent = `${text}…`;
    }

    /** Ask something that takes long, and show its progress in a place; return the answer, or nothing. */
    async ask(path, given, place) {
      this.line = element("span", { text: "Searching…" });
      const stop = element("button", { type: "button", text: "Stop", onclick: () => sv.ask("stop", {}) });
      place.replaceChildren(element("p", { class: "wb-buttons" }, stop, this.line));
      const [ok, found] = await sv.ask(path, given);
      this.line = null;
      place.replaceChildren();
      if (ok) return found;
      place.append(element("p", { text: found.error.message }));
      return null;
    }

    /** Return what the message about a refused step has: a button that searches, and a place for what it finds. */
    ofRefused() {
      const place = element("div", { role: "status", id: "wb-blame" });
      const button = element("button", { type: "button", text: "Which part is wrong?" });
      button.addEventListener("click", async () => {
        button.hidden = true;
        const found = await this.ask("blame", {}, place);
        button.hidden = Boolean(found);
        if (found) this.blame(found, place);
      });
      return [button, place];
    }

    blame(found, place) {
      const { guilty, sites } = found;
      const few = `${guilty.length} of ${sv.plural(sites, "place")} ${guilty.length === 1 ? "is" : "are"} wrong`;
      const rest = found.rest_holds && sites > guilty.length ? "; without it, the others are right." : ".";
      const said = guilty.length ? few + (guilty.length === 1 ? rest : rest.replace("it", "them")) : found.remark;
      place.append(element("p", { text: `${said} ${found.tries} tries, ${sv.duration(found.seconds)}.` }));
      place.append(element("ul", {}, ...guilty.map((one) => element("li", { text: `${one.node}: ${one.why}` }))));
      const nodes = guilty.map((one) => one.node);
      const buttons = element("div", { class: "wb-buttons" });
      const add = (text, onclick) => buttons.append(element("button", { type: "button", text, onclick }));
      if (nodes.length) add(`Select ${sv.plural(nodes.length, "wrong place")}`, () => this.bench.selection.only(nodes));
      if (found.rest_holds && sites > nodes.length)
        add("Do the step without " + (nodes.length === 1 ? "it" : "them"), () => this.bench.act({ act: "keep_right" }));
      place.append(buttons);
    }

    async changes(event) {
      event.preventDefault();
      const form = event.target;
      const given = { tensor: form.elements.tensor.value, limit: Number(form.elements.limit.value || NaN) };
      const place = byId("wb-found");
      const found = await this.ask("changes", given, place);
      if (!found) return;
      const first = found.steps.find((one) => one.number === found.first);
      const none = `No step changes ${found.tensor} by more than ${sv.number(found.limit)}.`;
      place.append(element("p", {}, element("b", { text: first ? `Step ${first.number + 1}, ${first.title}, is the first.` : none })));
      const row = (one) => {
        const apart = one.largest === null ? "another shape, or no such number" : `differs by at most ${sv.number(one.largest)}`;
        return element("li", { text: `after ${one.number + 1}. ${one.title}: ${apart}`, "data-step": one.number });
      };
      place.append(element("ul", {}, ...found.steps.map(row)));
      if (!first) return;
      const off = () => this.bench.act({ act: "switch", number: first.number, on: false });
      place.append(element("button", { type: "button", text: `Switch step ${first.number + 1} off`, onclick: off }));
    }
  }

  sv.Searches = Searches;
})(surgeryViewer);
