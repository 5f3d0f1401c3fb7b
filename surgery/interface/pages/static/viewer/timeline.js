// The slider over the states: "the graph after step 7".
(function (sv) {
  "use strict";

  const element = sv.element;

  sv.Timeline = class {
    constructor(view) {
      this.view = view;
      const last = view.model.states.length - 1;
      this.slider = element("input", {
        type: "range",
        min: 0,
        max: last,
        step: 1,
        class: "sv-slider",
        "aria-label": "State of the graph",
        oninput: () => view.setState(Number(this.slider.value)),
      });
      this.previous = sv.iconButton("previous", "Previous state", () => view.setState(view.state - 1));
      this.next = sv.iconButton("next", "Next state", () => view.setState(view.state + 1));
      this.play = sv.iconButton("play", "Play the states", () => this.run(!this.timer));
      this.bars = element("canvas", { class: "sv-bars", "aria-hidden": "true" });
      this.title = element("b", {});
      this.note = element("span", {});
      this.since = element("select", {
        class: "sv-select",
        "aria-label": "Show changes",
        onchange: () => view.setSinceStep(this.since.value === "step"),
      });
      this.since.append(
        element("option", { value: "all", text: "all changes so far" }),
        element("option", { value: "step", text: "this step only" }),
      );
      const track = element("div", { class: "sv-track" }, this.bars, this.slider);
      const text = element("p", { class: "sv-state" }, this.title, " ", this.note);
      this.element = element(
        "div",
        { class: "sv-timeline", role: "group", "aria-label": "States" },
        this.previous,
        last > 1 ? this.play : null,
        this.next,
        track,
        text,
        last > 1 ? this.since : null,
      );
    }

    /** Return what a state is called: "after step 7: fuse-gelu", with the number of the step in the run. */
    static text(model, state) {
      const { label, pass } = model.states[state];
      const name = sv.cut(pass || label || "", 60);
      if (model.states.length === 2) return name;
      return state === 0 ? name || "original" : `after step ${model.stepOf(state)}: ${name}`;
    }

    show() {
      const { view } = this;
      const { model } = view;
      const state = model.states[view.state];
      this.slider.value = String(view.state);
      this.previous.disabled = view.state === 0;
      this.next.disabled = view.state === model.states.length - 1;
      this.since.value = view.isStep ? "step" : "all";
      this.title.textContent = sv.Timeline.text(model, view.state);
      const parts = [sv.plural(state.nodes ?? 0, "node")];
      if (state.sites) parts.push(sv.plural(state.sites, "site"));
      if (state.verdict) parts.push(sv.cut(state.verdict, 30));
      if (state.needed > 0) parts.push("needs " + sv.number(100 * state.needed) + " % of the tolerance");
      this.note.textContent = parts.join(" · ");
      this.note.title = state.message ? sv.cut(state.message, 400) : "";
      this.slider.setAttribute("aria-valuetext", this.title.textContent + ", " + this.note.textContent);
      this.draw();
    }

    /** Draw how many nodes were removed and added in each state, as bars down and up. */
    draw() {
      const { model, palette, state } = this.view;
      const count = model.states.length;
      const [w, h] = [this.bars.clientWidth, this.bars.clientHeight];
      if (!w || !h || !palette) return;
      this.counts ??= countsOf(model);
      this.bars.width = w * 2;
      this.bars.height = h * 2;
      const context = this.bars.getContext("2d");
      context.scale(2, 2);
      const most = Math.log1p(Math.max(1, ...this.counts.added, ...this.counts.removed));
      const room = (w - 16) / Math.max(1, count - 1);
      for (let k = 1; k < count; k++) {
        const x = 8 + k * room;
        const width = Math.max(1, Math.min(6, room - 1));
        const size = (value) => (Math.log1p(value) / most) * (h / 2 - 2);
        context.globalAlpha = k <= state ? 0.9 : 0.3;
        context.fillStyle = palette.added;
        context.fillRect(x - width / 2, h / 2 - 1 - size(this.counts.added[k]), width, size(this.counts.added[k]));
        context.fillStyle = palette.removed;
        context.fillRect(x - width / 2, h / 2 + 1, width, size(this.counts.removed[k]));
      }
    }

    run(isOn) {
      clearInterval(this.timer);
      this.timer = null;
      this.play.setAttribute("aria-label", isOn ? "Stop" : "Play the states");
      this.play.title = isOn ? "Stop" : "Play the states";
      this.play.replaceChildren(sv.icon(isOn ? "pause" : "play"));
      if (!isOn) return;
      const { view } = this;
      const last = view.model.states.length - 1;
      if (view.state === last) view.setState(0);
      this.timer = setInterval(() => {
        view.setState(view.state + 1, true);
        if (view.state >= last) this.run(false);
      }, 700);
    }
  };

  function countsOf(model) {
    const [added, removed] = [new Array(model.states.length).fill(0), new Array(model.states.length).fill(0)];
    for (let node = 0; node < model.n; node++) {
      if (model.born[node] > 0) added[model.born[node]]++;
      if (model.died[node] >= 0) removed[model.died[node]]++;
    }
    return { added, removed };
  }
})(surgeryViewer);
