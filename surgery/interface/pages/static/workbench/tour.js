// The guided tour of the demo: short texts that point at parts of the page, and wait until people have tried them.
(function (sv) {
  "use strict";

  const { element, byId } = sv;
  const POLL = 250;

  /** A stop: its title, its text, the part of the page it is about, and whether that was done since it began. */
  const STOPS = [
    {
      title: "Select a node",
      text: "Click a Dropout in the graph; a click on a group opens it. By keyboard: press /, type dropout, and press Enter.",
      at: ".wb-graph",
      go: ".sv-stage",
      isDone: (bench) => bench.selection.chosen.size > 0,
    },
    {
      title: "Read why not",
      text: "Passes that can do nothing here say why. Open “Not here” at the end of the list, and one of the passes in it.",
      at: "#wb-offers",
      isDone: () => document.querySelector("#wb-offers details[data-pass][open] > div.wb-form") !== null,
    },
    {
      title: "Add a step",
      text: "Open drop-dropout in the list, or another pass, and press its Add button. It runs at once.",
      at: "#wb-offers",
      isDone: (bench, first) => bench.state.steps.length > first.steps.length,
    },
    {
      title: "See its verdict",
      text: "The step ran, and the model was compared with the original: “equal” means the same bits. What it removed is marked in the graph.",
      at: "#wb-steps",
    },
    {
      title: "Undo it",
      text: "Press Undo, or Ctrl+Z outside of a field. Nothing has to run again.",
      at: "#wb-undo",
      isDone: (bench) => bench.state.can_redo,
    },
    {
      title: "Look at values",
      text: "Select a node again if none is selected, and press “Look at values”: the model runs, and shows what is in the tensor.",
      at: "#wb-selection",
      isDone: (bench, first) => bench.values.tensor !== null && bench.values.tensor !== first.tensor,
    },
    {
      title: "Edit the recipe",
      text: "The steps are a recipe. Change its text, with one or more steps below “steps:”, and press Ctrl+Enter. A mistake is listed with its line.",
      at: "#wb-recipe",
      isDone: (bench, first) => bench.state.version > first.version && bench.state.steps.length > 0,
      help: {
        text: "Write two steps",
        act: () => {
          const area = byId("wb-recipe");
          area.value = area.value.split(/^steps:/m)[0] + "steps:\n  - drop-dropout\n  - fuse-layer-norm\n";
          area.focus();
        },
      },
    },
    {
      title: "Save",
      text: "Press Save. You get the model, the recipe that makes it again, a report, and a statement of how it was made.",
      at: "#wb-save",
      isDone: () => byId("wb-saved").childElementCount > 0,
    },
  ];

  class Tour {
    constructor(bench) {
      this.bench = bench;
      this.at = -1;
      this.again = element("button", { type: "button", text: "Tour", onclick: () => this.open(0) });
      byId("wb-end").before(this.again);
      this.title = element("h2", { tabindex: "-1", id: "wb-tour-title" });
      this.text = element("div", { "aria-live": "polite" });
      this.buttons = element("div", { class: "wb-buttons" });
      this.box = element("aside", { id: "wb-tour", "aria-labelledby": "wb-tour-title" }, this.title, this.text, this.buttons);
      this.box.hidden = true;
      this.box.addEventListener("keydown", (event) => {
        if (event.key === "Escape") this.close();
      });
      document.querySelector("main").before(this.box);
      setInterval(() => this.look(), POLL);
    }

    /** Show a stop. The focus moves only if people asked for it. */
    open(number, keepsFocus) {
      this.at = number;
      this.again.hidden = true;
      this.box.hidden = false;
      const stop = STOPS[number];
      const { state, values } = this.bench;
      this.first = { version: state.version, steps: state.steps, tensor: values.tensor };
      this.title.textContent = `${number + 1} of ${STOPS.length}: ${stop.title}`;
      this.text.replaceChildren(element("p", { text: stop.text }));
      this.buttons.replaceChildren(...this.choices(stop));
      this.point(stop.at);
      if (keepsFocus) this.text.prepend(element("p", { class: "unseen", text: this.title.textContent }));
      else this.title.focus();
    }

    choices(stop) {
      const button = (text, onclick) => element("button", { type: "button", text, onclick });
      const found = [button(stop.isDone ? "Skip" : "Next", () => this.next())];
      if (stop.help) found.unshift(button(stop.help.text, stop.help.act));
      found.push(button("Go there", () => this.go(stop)), button("End the tour", () => this.close()));
      return found;
    }

    /** Mark a part of the page, and show it. */
    point(selector) {
      for (const one of document.querySelectorAll(".wb-pointed")) one.classList.remove("wb-pointed");
      const part = selector && document.querySelector(selector);
      part?.classList.add("wb-pointed");
      part?.scrollIntoView({ block: "nearest" });
      part?.scrollTo(0, 0);
    }

    /** Move the focus to the part of the page that the text is about. */
    go(stop) {
      const part = document.querySelector(stop.go || stop.at);
      const inside = "button, input, textarea, summary, [tabindex]";
      const place = part.matches(inside) ? part : part.querySelector(inside);
      (place || byId("wb-side")).focus();
    }

    /** Go on once people have done what the stop is about. */
    look() {
      const stop = STOPS[this.at];
      if (stop?.isDone && this.bench.state && !this.bench.isBusy && stop.isDone(this.bench, this.first)) this.next(true);
    }

    next(keepsFocus) {
      if (this.at + 1 < STOPS.length) return this.open(this.at + 1, keepsFocus);
      this.at = STOPS.length;
      this.point(null);
      this.title.textContent = "That was the tour";
      const text = "Open your own model: surgery open model.onnx. The server ends with End, or Ctrl+C in the terminal.";
      this.text.replaceChildren(element("p", { text }));
      this.buttons.replaceChildren(element("button", { type: "button", text: "Close", onclick: () => this.close() }));
    }

    close() {
      this.at = -1;
      this.point(null);
      this.box.hidden = true;
      this.again.hidden = false;
      this.again.focus();
    }
  }

  if (!("tour" in document.body.dataset)) return;
  const tour = new Tour(window.workbench);
  window.tour = tour;
  const begin = setInterval(() => {
    if (!("ready" in document.body.dataset)) return;
    clearInterval(begin);
    tour.open(0);
  }, POLL);
})(surgeryViewer);
