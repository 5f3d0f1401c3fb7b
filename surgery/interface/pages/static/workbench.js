// What acts on the model: the selection with what can be done, the steps, the recipe, and saving.
(function (sv) {
  "use strict";

  const element = sv.element;
  const byId = (id) => document.getElementById(id);
  const MOST_CHIPS = 12;
  const MOST_OFFERS = 40;

  const STATUS = {
    committed: "verified",
    unchanged: "changed nothing",
    rolled_back: "undone",
    skipped: "skipped: its condition is false",
    off: "switched off",
    waiting: "waiting",
  };

  /** Ask the server; the result is [whether it agreed, what it says]. */
  async function ask(path, given) {
    const options = given === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" } };
    if (given !== undefined) options.body = JSON.stringify(given);
    try {
      const answer = await fetch("/api/" + path, options);
      const isJson = (answer.headers.get("content-type") || "").includes("json");
      return [answer.ok, isJson ? await answer.json() : { error: { message: await answer.text(), problems: [] } }];
    } catch {
      const message = "The server does not answer. What was done is in its draft: start 'surgery open' again.";
      return [false, { error: { message, problems: [] } }];
    }
  }

  class Workbench {
    constructor() {
      this.view = null;
      this.state = null;
      this.chosen = new Map();
      this.isBusy = false;
      this.asked = 0;
      byId("wb-undo").addEventListener("click", () => this.act({ act: "undo" }));
      byId("wb-redo").addEventListener("click", () => this.act({ act: "redo" }));
      byId("wb-end").addEventListener("click", () => this.end());
      byId("wb-write").addEventListener("click", () => this.write());
      byId("wb-save").addEventListener("submit", (event) => this.save(event));
      document.addEventListener("keydown", (event) => this.key(event));
    }

    async start() {
      // The token was good for one visit; a reload needs the cookie only.
      history.replaceState(null, "", location.pathname);
      this.listen();
      const [ok, state] = await ask("state");
      if (!ok) return this.fail(state.error);
      await this.show(state);
      if (state.refused) this.refuse(state.refused, "A step of the recipe was refused; it and those after it are off.");
      else if (state.reopened) this.tell("These are the steps of the last session, which was not saved.", "info");
      document.body.dataset.ready = "yes";
    }

    listen() {
      const events = new EventSource("/api/events");
      events.onmessage = (message) => {
        const event = JSON.parse(message.data);
        if (event.kind === "stage" && this.isBusy) this.say(`${event.step}: ${event.stage}…`);
        else if (event.kind === "end") {
          events.close();
          this.say("The server has ended.");
        } else if (event.kind === "changed" && !this.isBusy && event.version !== this.state?.version) this.reload();
      };
    }

    async reload() {
      const [ok, state] = await ask("state");
      if (ok) await this.show(state);
    }

    say(text) {
      byId("wb-status").textContent = text;
    }

    // What is shown

    async show(state) {
      const isNew = this.state?.version !== state.version || !this.view;
      this.state = state;
      byId("wb-undo").disabled = !state.can_undo;
      byId("wb-redo").disabled = !state.can_redo;
      byId("wb-recipe").value = state.recipe;
      byId("wb-problems").replaceChildren();
      this.steps();
      if (isNew) await this.draw();
      this.say(`${sv.plural(state.nodes, "node")}, ${sv.plural(state.steps.length, "step")}`);
    }

    async draw() {
      const [ok, drawing] = await ask("drawing");
      if (!ok) return this.fail(drawing.error);
      const names = Array.from(this.chosen.keys());
      const open = this.view ? this.openGroups() : null;
      this.view?.timeline?.run?.(false);
      history.replaceState(null, "", location.pathname);
      this.chosen.clear();
      const options = { side: false, onSelect: (item, isAdding) => this.select(item, isAdding) };
      this.view = sv.mount(byId("graph-view"), drawing, options);
      window.view = this.view;
      if (open) this.openAgain(open);
      this.chooseNames(names);
      document.body.dataset.drawn = String(this.state.version);
    }

    /** Return the opened groups by the names of those around them. */
    openGroups() {
      const { model, layout } = this.view;
      return new Set(
        Array.from(layout.open.keys())
          .filter((group) => layout.open[group])
          .map((group) => this.pathOf(model, group)),
      );
    }

    pathOf(model, group) {
      const names = [];
      for (let at = group; at >= 0; at = model.parent[at]) names.push(model.strings[model.groupName[at]]);
      return names.join("\n");
    }

    openAgain(paths) {
      const { model } = this.view;
      const groups = Array.from(model.parent.keys()).filter((group) => paths.has(this.pathOf(model, group)));
      if (groups.length) this.view.openOnly(groups);
      this.view.fit(true);
    }

    // The selection: names of nodes and tensors, each with the row of its node

    select(item, isAdding) {
      if (this.isQuiet) return;
      if (!isAdding) this.chosen.clear();
      if (item >= 0) {
        const names = this.namesOf(item);
        const isThere = names.every(([name]) => this.chosen.has(name));
        for (const [name, row] of names) {
          if (isAdding && isThere) this.chosen.delete(name);
          else this.chosen.set(name, row);
        }
      }
      this.light();
      this.offer();
    }

    /** Return the nodes of an item with their names: of a group all that are in it, in every instance of a repeat. */
    namesOf(item) {
      const { model } = this.view;
      const name = (row) => model.strings[model.name[row]];
      if (item < model.n) return this.isThere(item) ? [[name(item), item]] : [];
      const found = [];
      for (let row = 0; row < model.n; row++) {
        if (!this.isThere(row) || model.isPort(row)) continue;
        for (let at = model.group[row]; at >= 0; at = model.parent[at])
          if (at === item - model.n) {
            found.push([name(row), row]);
            break;
          }
      }
      return found;
    }

    /** Return whether a row is in the model after the last step. */
    isThere(row) {
      return this.view.model.died[row] < 0;
    }

    chooseNames(names) {
      const { model } = this.view;
      const rows = new Map();
      for (let row = 0; row < model.n; row++) if (this.isThere(row)) rows.set(model.strings[model.name[row]], row);
      for (const name of names) if (rows.has(name)) this.chosen.set(name, rows.get(name));
      const first = this.chosen.values().next().value;
      if (first !== undefined) {
        this.isQuiet = true;
        this.view.go(first, { isAtOnce: true });
        this.isQuiet = false;
      }
      this.light();
      this.offer();
    }

    light() {
      this.view.lit = Array.from(this.chosen.values()).filter((row) => row >= 0 && this.view.scene.shown[row]);
      this.view.invalidate();
    }

    /** Return the tensors of the only selected node: its outputs, which can be selected instead. */
    tensors() {
      if (this.chosen.size !== 1) return [];
      const [row] = this.chosen.values();
      const { model } = this.view;
      if (row < 0 || model.isPort(row)) return [];
      const outputs = model.details[row]?.outputs || [];
      return outputs.map(([name]) => (typeof name === "number" ? model.strings[name] : name)).filter(Boolean);
    }

    async offer() {
      const names = Array.from(this.chosen.keys());
      const number = ++this.asked;
      byId("wb-hint").hidden = names.length > 0;
      const chips = element("ul", { class: "wb-chips", "aria-label": "Selected" });
      for (const name of names.slice(0, MOST_CHIPS)) chips.append(element("li", { text: sv.cut(name, 70) }));
      if (names.length > MOST_CHIPS) chips.append(element("li", { text: `and ${names.length - MOST_CHIPS} more` }));
      const actions = element("div", { class: "wb-buttons" });
      for (const tensor of this.tensors().slice(0, 4)) {
        const text = "Tensor " + sv.cut(tensor, 36);
        actions.append(element("button", { type: "button", text, onclick: () => this.chooseTensor(tensor) }));
      }
      if (names.length === 1) {
        const look = () => this.values(this.tensors()[0] || names[0]);
        actions.append(element("button", { type: "button", text: "Look at values", onclick: look }));
      }
      byId("wb-selection").replaceChildren(...(names.length ? [chips, actions] : []));
      byId("wb-offers").replaceChildren();
      if (!names.length) return;
      const [ok, offers] = await ask("offers", { names });
      if (number !== this.asked) return;
      if (!ok) return byId("wb-offers").replaceChildren(element("p", { class: "note", text: offers.error.message }));
      this.offers(offers, names);
    }

    chooseTensor(name) {
      this.chosen.clear();
      this.chosen.set(name, -1);
      this.view.lit = [];
      this.offer();
    }

    offers(offers, names) {
      const can = offers.filter((one) => one.sites > 0 || (one.sites === null && one.for_selection));
      const others = offers.filter((one) => one.sites === null && !one.for_selection);
      const not = offers.filter((one) => one.sites === 0);
      const box = byId("wb-offers");
      for (const one of can.slice(0, MOST_OFFERS)) box.append(this.offerForm(one));
      box.append(this.folded(`Whole model: ${others.length} more`, others, (one) => this.offerForm(one)));
      box.append(this.folded(`Not here: ${not.length}, and why`, not, (one) => this.refusal(one, names)));
    }

    /** Return a fold whose content is made when it is opened. */
    folded(title, items, make) {
      const head = element("summary", { text: title });
      const fold = element("details", { class: "wb-more" }, head);
      head.addEventListener("click", () => {
        if (fold.children.length === 1) fold.append(...items.map(make));
      });
      return fold;
    }

    offerForm(one) {
      const places = one.sites ? " " + sv.plural(one.sites, "place") : "";
      const head = element("summary", {}, element("b", { text: one.name }), element("small", { text: places }));
      const fold = element("details", { "data-pass": one.name }, head);
      head.addEventListener("click", () => {
        if (fold.children.length === 1) fold.append(this.form(one));
      });
      return fold;
    }

    form(one) {
      const form = element("form", { class: "wb-form" }, element("p", { text: one.about }));
      if (one.sites && !one.for_selection)
        form.append(element("p", { text: "It changes all places in the model, not only the selected ones." }));
      if (one.changes_results) form.append(element("p", { text: "It may change the results on purpose." }));
      const inputs = one.fields.map((field) => [field, this.input(field)]);
      const [first, rest] = [inputs.filter(([field]) => field.required || field.filled), []];
      for (const pair of inputs) if (!first.includes(pair)) rest.push(pair);
      const label = ([field, input]) =>
        element(
          "label",
          {},
          element("span", { text: field.name + (field.required ? " (required)" : "") }),
          input,
          element("small", { text: `${field.type}${field.about ? ". " + field.about : ""}` }),
        );
      form.append(...first.map(label));
      if (rest.length) {
        const more = element("details", { class: "wb-more" }, element("summary", { text: "More options" }));
        more.append(...rest.map(label));
        form.append(more);
      }
      form.append(element("button", { type: "submit", text: `Add ${one.name}` }));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const options = {};
        for (const [field, input] of inputs) {
          const given = this.read(field, input);
          if (given !== undefined) options[field.name] = given;
        }
        const step = Object.keys(options).length ? { [one.name]: options } : one.name;
        this.act({ act: "add", step });
      });
      return form;
    }

    input(field) {
      const text = field.value === null || field.value === undefined ? "" : JSON.stringify(field.value);
      const shown = typeof field.value === "string" ? field.value : text;
      if (field.choices.length) {
        const select = element("select", { name: field.name });
        const none = field.value === null ? [""] : [];
        for (const choice of [...none, ...field.choices])
          select.append(element("option", { value: choice, text: choice || "(default)" }));
        select.value = shown;
        select.dataset.first = shown;
        return select;
      }
      const input = element("input", { name: field.name, value: shown, required: field.required, autocomplete: "off" });
      input.dataset.first = field.filled ? "\u0000" : shown;
      return input;
    }

    /** Return the value of a field as in a recipe; nothing where it is as it was and not from the selection. */
    read(field, input) {
      const text = input.value.trim();
      if (text === input.dataset.first || text === "") return undefined;
      if (field.choices.includes("true") && field.choices.length === 2) return text === "true";
      if (field.type === "str" || field.choices.length) return text;
      try {
        return JSON.parse(text);
      } catch {
        return text;
      }
    }

    refusal(one, names) {
      const text = element("p", { class: "note", text: one.why_not || "It finds no place here." });
      const box = element("details", { "data-pass": one.name }, element("summary", { text: one.name }), text);
      const why = element("button", { type: "button", text: "Why not?" });
      why.addEventListener("click", async () => {
        why.disabled = true;
        const [ok, lines] = await ask("why", { pass: one.name, node: names[0], options: {} });
        text.textContent = ok ? lines.join("\n") : lines.error.message;
        text.setAttribute("role", "status");
        why.remove();
      });
      box.append(element("div", { class: "wb-form" }, text, why));
      return box;
    }

    // Values

    async values(tensor) {
      this.say(`Running the model to look at ${sv.cut(tensor, 60)}…`);
      const [ok, found] = await ask("values", { tensor });
      this.say("");
      if (!ok) return this.fail(found.error);
      const box = element("div", { class: "wb-message info wb-values" });
      const shape = (found.shapes || []).map((dims) => "[" + dims.join(", ") + "]").join(", ");
      box.append(element("p", {}, element("b", { text: sv.cut(found.name, 100) }), ` ${found.dtype} ${shape}`));
      if (found.histogram) {
        const { min, max, mean, std, nan, infinite } = found;
        const figures = [`min ${sv.number(min)}`, `max ${sv.number(max)}`, `mean ${sv.number(mean)}`];
        figures.push(`std ${sv.number(std)}`, `${nan} NaN`, `${infinite} infinite`);
        box.append(element("p", { text: figures.join(", ") }), this.histogram(found.histogram));
      }
      const first = (found.first || []).slice(0, 16).map((value) => (typeof value === "number" ? sv.number(value) : value));
      box.append(element("p", { class: "mono", text: first.join(" ") + (found.elements > 16 ? " …" : "") }));
      byId("wb-message").replaceChildren(box);
    }

    histogram({ counts, from, to }) {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const label = `Histogram of ${counts.length} bins from ${sv.number(from)} to ${sv.number(to)}`;
      for (const [key, value] of Object.entries({ viewBox: "0 0 240 60", role: "img", "aria-label": label }))
        svg.setAttribute(key, value);
      svg.setAttribute("preserveAspectRatio", "none");
      const most = Math.max(...counts, 1);
      counts.forEach((count, k) => {
        const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        const [wide, high] = [240 / counts.length, (60 * count) / most];
        for (const [key, value] of Object.entries({ x: k * wide, y: 60 - high, width: wide - 1, height: high }))
          bar.setAttribute(key, value);
        svg.append(bar);
      });
      return svg;
    }

    // Steps

    steps() {
      const { steps } = this.state;
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
      const last = this.state.steps.length - 1;
      const button = (text, given, isOff) =>
        element("button", {
          type: "button",
          text,
          disabled: isOff,
          "aria-label": `${text}: step ${number + 1}, ${title}`,
          onclick: () => this.act({ number, ...given }),
        });
      return element(
        "li",
        { class: "wb-step " + step.status, "data-step": number },
        element("h3", {}, element("span", { text: `${number + 1}. ${title}` }), element("small", { text: changes.join(", ") })),
        element("p", { text: facts.join(", ") }),
        step.message ? element("p", { text: sv.cut(step.message, 400) }) : null,
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

    // Acts

    async act(given) {
      if (this.isBusy || !this.state) return false;
      this.busy(true);
      this.say("Working…");
      byId("wb-message").replaceChildren();
      const [ok, answer] = await ask("act", { version: this.state.version, ...given });
      this.busy(false);
      if (answer.state) await this.show(answer.state);
      if (!ok) this.fail(answer.error, given.act === "write");
      else if (!answer.ok) this.refuse(answer.refused);
      return ok && answer.ok;
    }

    busy(isBusy) {
      this.isBusy = isBusy;
      document.body.dataset.busy = isBusy ? "yes" : "no";
      document.body.setAttribute("aria-busy", String(isBusy));
    }

    write() {
      const text = byId("wb-recipe").value;
      this.act({ act: "write", text }).then((isDone) => {
        if (!isDone) byId("wb-recipe").value = text;
      });
    }

    tell(text, kind) {
      byId("wb-message").replaceChildren(element("div", { class: "wb-message " + (kind || "") }, element("p", { text })));
    }

    /** Show an error; mistakes in the recipe lead to their lines. */
    fail(error, isWritten) {
      this.tell(error.message);
      this.say("Nothing was changed.");
      if (!isWritten) return;
      const list = byId("wb-problems");
      list.replaceChildren(
        ...error.problems.map((one) =>
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

    goTo(line) {
      const area = byId("wb-recipe");
      const before = area.value.split("\n").slice(0, line - 1);
      const start = before.join("\n").length + (before.length ? 1 : 0);
      area.focus();
      area.setSelectionRange(start, start + (area.value.split("\n")[line - 1] || "").length);
    }

    /** Show why a step was refused, with the offending value and the nodes that it lies on. */
    refuse(refused, text) {
      const box = element("div", { class: "wb-message" }, element("p", { text: text || "Refused; nothing was changed." }));
      box.append(element("p", {}, element("b", { text: refused.title }), ": " + refused.message));
      if (refused.value) {
        const { output, index, original, changed } = refused.value;
        box.append(element("p", { class: "mono", text: `${output}[${index.join(", ")}]: ${original} became ${changed}` }));
      }
      if (refused.nodes.length) {
        const show = () => {
          this.chosen.clear();
          this.chooseNames(refused.nodes);
        };
        const label = `Show ${sv.plural(refused.nodes.length, "node")}`;
        box.append(element("button", { type: "button", text: label, onclick: show }));
      }
      byId("wb-message").replaceChildren(box);
      this.say(text || "Refused; nothing was changed.");
    }

    async save(event) {
      event.preventDefault();
      if (this.isBusy) return;
      this.busy(true);
      this.say("Saving…");
      byId("wb-saved").replaceChildren();
      const given = { place: byId("wb-place").value, force: byId("wb-force").checked };
      const [ok, answer] = await ask("save", given);
      this.busy(false);
      if (!ok) return this.fail(answer.error);
      byId("wb-message").replaceChildren();
      byId("wb-saved").replaceChildren(...answer.files.map((text) => element("li", { text })));
      this.say("Saved.");
    }

    async end() {
      const [ok, answer] = await ask("end", {});
      if (!ok) this.fail(answer.error);
    }

    key(event) {
      const isCommand = event.ctrlKey || event.metaKey;
      const isText = event.target instanceof Element && event.target.closest("input, textarea, select");
      if (isCommand && event.key === "Enter" && event.target === byId("wb-recipe")) {
        event.preventDefault();
        this.write();
      } else if (isCommand && !isText && event.key.toLowerCase() === "z") {
        event.preventDefault();
        this.act({ act: event.shiftKey ? "redo" : "undo" });
      }
    }
  }

  window.workbench = new Workbench();
  window.workbench.start();
})(surgeryViewer);
