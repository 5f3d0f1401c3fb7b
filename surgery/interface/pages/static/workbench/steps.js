// The steps of the recipe.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  const MOST_LETTERS = 240;
  const FEW = 12; // places that are listed each by itself

  const STATUS = {
    committed: "verified",
    unchanged: "changed nothing",
    rolled_back: "undone",
    skipped: "skipped: its condition is false",
    off: "switched off",
    waiting: "waiting",
  };

  /** The list of steps with their verdicts, and what can be done with each. */
  class Steps {
    constructor(bench) {
      this.bench = bench;
    }

    show() {
      const { steps } = this.bench.state;
      byId("wb-none").hidden = steps.length > 0;
      byId("wb-steps").replaceChildren(...steps.map((step) => this.step(step)));
    }

    step(step) {
      const { number, title } = step;
      const isIntended = step.status === "committed" && step.verdict === "intended";
      const facts = [isIntended ? "not compared: it changes the results on purpose" : STATUS[step.status] || step.status];
      if (step.verdict && !isIntended) facts.push(step.verdict);
      // A larger error than the tolerance is accepted only if the original is as far from float64.
      if (step.tolerance > 1) facts.push("as near to the results in float64 as the original");
      else if (step.tolerance > 0) facts.push(sv.number(100 * step.tolerance) + " % of the tolerance");
      const before = this.nodesBefore(number);
      if (step.nodes && step.nodes !== before) facts.push(`${sv.number(before)} → ${sv.plural(step.nodes, "node")}`);
      if (step.seconds >= 0.0005) facts.push(sv.duration(step.seconds));
      const changes = ["added", "removed", "altered"]
        .filter((kind) => step.changed[kind].count)
        .map((kind) => `${step.changed[kind].count} ${kind}`);
      const last = this.bench.state.steps.length - 1;
      const button = (text, given, isOff) =>
        element("button", {
          type: "button",
          text,
          disabled: isOff,
          "aria-label": `${text}: step ${number + 1}, ${title}`,
          onclick: () => this.bench.act({ number, ...given }),
        });
      return element(
        "li",
        { class: "wb-step " + (isIntended ? "intended" : step.status), "data-step": number },
        element("h3", {}, element("span", { text: `${number + 1}. ${title}` }), element("small", { text: changes.join(", ") })),
        element("p", { text: facts.join(", ") }),
        step.message ? this.message(step.message) : null,
        step.left.count ? this.left(step.left) : null,
        element(
          "div",
          { class: "wb-buttons" },
          button(step.on ? "Off" : "On", { act: "switch", on: !step.on }),
          button("Up", { act: "move", to: number - 1 }, number === 0),
          button("Down", { act: "move", to: number + 1 }, number === last),
          button("Remove", { act: "remove" }),
        ),
      );
    }

    /** Return the number of nodes before a step. */
    nodesBefore(number) {
      const { steps, nodes_at_first: first } = this.bench.state;
      const earlier = steps.slice(0, number).filter((step) => step.nodes);
      return earlier.length ? earlier[earlier.length - 1].nodes : first;
    }

    /** Return in one line what became of a step. */
    line(number) {
      const box = byId("wb-steps").children[number];
      return box ? `${this.bench.state.steps[number].title}: ${box.querySelector("p").textContent}` : "";
    }

    /** Return what a step says; a long text is cut, and whole in a fold. */
    message(text) {
      if (text.length <= MOST_LETTERS) return element("p", { text });
      const head = element("summary", {}, element("span", { text: sv.cut(text.split("\n")[0], MOST_LETTERS) }));
      return element("details", { class: "wb-more" }, head, element("p", { text }));
    }

    /** Return the places that a step left as they are, with the reasons, in a fold. */
    left({ count, places, reasons }) {
      const head = element("summary", { text: `${sv.plural(count, "place")} left as before, and why` });
      const of = (one) => `${one.pass}: ${one.count > 1 ? sv.plural(one.count, "place") : sv.cut(one.nodes[0], 80)}, ${one.why}`;
      const one = (place) => `${sv.cut(place.node, 80)}: ${place.why}`;
      const lines = reasons && count > FEW ? reasons.map(of) : places.map(one);
      const list = element("ul", {}, ...lines.map((text) => element("li", { text })));
      const nodes = places.map((one) => one.node);
      const show = element("button", { type: "button", text: "Select", onclick: () => this.bench.selection.only(nodes) });
      show.setAttribute("aria-label", `Select ${sv.plural(nodes.length, "place")} left as before`);
      return element("details", { class: "wb-more wb-left" }, head, list, show);
    }
  }

  sv.Steps = Steps;
})(surgeryViewer);
