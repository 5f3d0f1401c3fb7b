// The page of the workbench: the state of the session, the graph, and what acts on them.
(function (sv) {
  "use strict";

  const { element, byId } = sv;

  class Workbench {
    constructor() {
      this.view = null;
      this.state = null;
      this.isBusy = false;
      this.complaint = "";
      this.selection = new sv.Selection(this);
      this.properties = new sv.Properties(this);
      this.offers = new sv.Offers(this);
      this.values = new sv.Values(this);
      this.inputs = new sv.Inputs(this);
      this.second = new sv.SecondModel(this);
      this.heat = new sv.Heat(this);
      this.steps = new sv.Steps(this);
      this.whole = new sv.WholeModel(this);
      this.text = new sv.RecipeText(this);
      this.searches = new sv.Searches(this);
      for (const button of document.querySelectorAll("[data-act]"))
        button.addEventListener("click", () => this.act({ act: button.dataset.act }));
      byId("wb-end").addEventListener("click", () => this.end());
      byId("wb-save").addEventListener("submit", (event) => this.save(event));
      document.addEventListener("keydown", (event) => this.key(event));
    }

    async start() {
      // The token was good for one visit; a reload needs the cookie only.
      history.replaceState(null, "", location.pathname);
      this.listen();
      const [ok, state] = await sv.ask("state");
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
        else if (event.kind === "search") this.searches.progress(event.text);
        else if (event.kind === "end") {
          events.close();
          this.say("The server has ended.");
          this.tell("The server has ended, and this page can be closed. Unsaved steps are in the draft.", "info");
          for (const part of [byId("wb-side"), document.querySelector(".wb-head .wb-buttons")]) part.inert = true;
        } else if (event.kind === "changed" && !this.isBusy && event.version !== this.state?.version) this.reload();
      };
    }

    async reload() {
      const [ok, state] = await sv.ask("state");
      if (ok) await this.show(state);
    }

    say(text) {
      byId("wb-status").textContent = text;
    }

    async show(state, chosen) {
      const isNew = this.state?.version !== state.version || !this.view;
      this.state = state;
      byId("wb-undo").disabled = !state.can_undo;
      byId("wb-redo").disabled = !state.can_redo;
      byId("wb-recipe").value = state.recipe;
      byId("wb-problems").replaceChildren();
      this.steps.show();
      this.whole.show();
      this.searches.show();
      if (isNew) this.values.steps(state.steps);
      if (isNew) this.second.back();
      if (isNew) await this.draw(chosen);
      this.say(`${sv.plural(state.nodes, "node")}, ${sv.plural(state.steps.length, "step")}`);
    }

    async draw(chosen) {
      const [ok, drawing] = await sv.ask("drawing");
      if (!ok) return this.fail(drawing.error);
      const names = chosen || Array.from(this.selection.chosen.keys());
      const open = this.view ? this.openGroups() : null;
      this.view?.timeline?.run?.(false);
      history.replaceState(null, "", location.pathname);
      this.selection.chosen.clear();
      const options = { side: false, details: Boolean(this.isDetailed), onSelect: (item, isAdding) => this.selection.select(item, isAdding) };
      this.view = sv.mount(byId("graph-view"), drawing, options);
      window.view = this.view;
      if (open) this.openAgain(open);
      this.selection.chooseNames(names);
      this.heat.redraw();
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

    /** Change the steps; `chosen` are the names to select then, if not the same. */
    async act(given, chosen) {
      if (this.isBusy || !this.state) return false;
      this.busy(true);
      this.say("Working…");
      byId("wb-message").replaceChildren();
      const [ok, answer] = await sv.ask("act", { version: this.state.version, ...given });
      this.busy(false);
      if (answer.state) await this.show(answer.state, answer.ok ? chosen : undefined);
      if (!ok) this.fail(answer.error, given.act === "write");
      else if (!answer.ok) this.refuse(answer.refused);
      else if (given.act === "add" || given.act === "set") this.say(this.steps.line(given.at ?? this.state.steps.length - 1));
      return ok && answer.ok;
    }

    busy(isBusy) {
      this.isBusy = isBusy;
      document.body.dataset.busy = isBusy ? "yes" : "no";
      document.body.setAttribute("aria-busy", String(isBusy));
    }

    tell(text, kind) {
      this.notice(element("div", { class: "wb-message " + (kind || "") }, element("p", { text })));
    }

    /** Show a message above everything at the side, until it is closed or something else is done. */
    notice(box) {
      const close = element("button", { type: "button", class: "wb-close", "aria-label": "Close the message" });
      close.addEventListener("click", () => byId("wb-message").replaceChildren());
      box.prepend(close);
      byId("wb-message").replaceChildren(box);
    }

    /** Show an error; mistakes in the recipe lead to their lines. */
    fail(error, isWritten) {
      this.complaint = error.message;
      this.tell(error.message);
      this.say("Nothing was changed.");
      if (isWritten) this.text.mistakes(error.problems);
    }

    /** Show why a step was refused, with the offending value and the nodes that it lies on. */
    refuse(refused, text) {
      this.complaint = refused.message;
      const box = element("div", { class: "wb-message" }, element("p", { text: text || "Refused; nothing was changed." }));
      box.append(element("p", {}, element("b", { text: refused.title }), ": " + refused.message));
      if (refused.value) {
        const { output, index, original, changed } = refused.value;
        box.append(element("p", { class: "mono", text: `${output}[${index.join(", ")}]: ${original} became ${changed}` }));
      }
      if (refused.nodes.length) {
        const show = () => this.selection.only(refused.nodes);
        const label = `Show ${sv.plural(refused.nodes.length, "node")}`;
        box.append(element("button", { type: "button", text: label, onclick: show }));
      }
      if (!text) box.append(...this.searches.ofRefused());
      this.notice(box);
      this.say(text || "Refused; nothing was changed.");
    }

    async save(event) {
      event.preventDefault();
      if (this.isBusy) return;
      this.busy(true);
      this.say("Saving…");
      byId("wb-saved").replaceChildren();
      const given = { place: byId("wb-place").value, force: byId("wb-force").checked };
      const [ok, answer] = await sv.ask("save", given);
      this.busy(false);
      if (!ok) return this.fail(answer.error);
      byId("wb-message").replaceChildren();
      const file = (text) =>
        text.endsWith(".html") ? element("a", { href: "/report", target: "_blank", rel: "noopener", text }) : text;
      byId("wb-saved").replaceChildren(...answer.files.map((text) => element("li", {}, file(text))));
      this.say("Saved.");
    }

    async end() {
      const [ok, answer] = await sv.ask("end", {});
      if (!ok) this.fail(answer.error);
    }

    key(event) {
      const isCommand = event.ctrlKey || event.metaKey;
      const isText = event.target instanceof Element && event.target.closest("input, textarea, select");
      if (isCommand && event.key === "Enter" && event.target === byId("wb-recipe")) {
        event.preventDefault();
        this.text.write();
      } else if (isCommand && !isText && event.key.toLowerCase() === "z") {
        event.preventDefault();
        this.act({ act: event.shiftKey ? "redo" : "undo" });
      }
    }
  }

  window.workbench = new Workbench();
  window.workbench.start();
})(surgeryViewer);
