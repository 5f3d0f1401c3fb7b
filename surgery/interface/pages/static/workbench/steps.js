// The steps of the recipe.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  const MOST_LETTERS = 240;

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
      const facts = [STATUS[step.status] || step.status];
      if (step.verdict) facts.push(step.verdict);
      if (step.tolerance > 0) facts.push(sv.number(100 * step.tolerance) + " % of the tolerance");
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
        { class: "wb-step " + step.status, "data-step": number },
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

    /** Return what a step says; a long text is cut, and whole in a fold. */
    message(text) {
      if (text.length <= MOST_LETTERS) return element("p", { text });
      const head = element("summary", {}, element("span", { text: sv.cut(text, MOST_LETTERS) }));
      return element("details", { class: "wb-more" }, head, element("p", { text }));
    }

    /** Return the places that a step left as they are, with the reasons, in a fold. */
    left({ count, places }) {
      const head = element("summary", { text: `${sv.plural(count, "place")} left as before, and why` });
      const list = element("ul", {}, ...places.map((one) => element("li", { text: `${sv.cut(one.node, 80)}: ${one.why}` })));
      const nodes = places.map((one) => one.node);
      const show = element("button", { type: "button", text: "Select", onclick: () => this.bench.selection.only(nodes) });
      show.setAttribute("aria-label", `Select ${sv.plural(nodes.length, "place")} left as before`);
      return element("details", { class: "wb-more wb-left" }, head, list, show);
    }
  }

  sv.Steps = Steps;
})(surgeryViewer);
