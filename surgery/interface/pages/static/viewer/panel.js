// All about the selected node or group.
(function (sv) {
  "use strict";

  const element = sv.element;

  sv.Panel = class {
    constructor(view) {
      this.view = view;
      // A page with its own place for what is selected shows the details only when they are asked for.
      this.isOn = view.options.details !== false;
      this.body = element("div", { class: "sv-panel-body" });
      this.title = element("h3", { class: "sv-panel-title", tabindex: "-1" });
      const close = sv.iconButton("close", "Close details", () => view.select(-1));
      const head = element("div", { class: "sv-panel-head" }, this.title, close);
      this.element = element("aside", { class: "sv-panel sv-off", "aria-label": "Details" }, head, this.body);
    }

    /** Show an item, or nothing for -1. */
    show(item) {
      const isShown = this.isOn && item >= 0;
      this.element.classList.toggle("sv-off", !isShown);
      if (!isShown) return;
      const { model } = this.view;
      this.title.textContent = sv.cut(model.rawLabel(item), 120);
      this.body.replaceChildren();
      if (model.isGroup(item)) this.group(item - model.n);
      else this.node(item);
      this.body.scrollTop = 0;
    }

    /** Return the text of an index into the strings, or of a text. */
    text(value) {
      return typeof value === "number" ? this.view.model.strings[value] || "" : String(value ?? "");
    }

    section(title, ...children) {
      const some = children.filter(Boolean);
      if (some.length) this.body.append(element("section", {}, element("h4", { text: title }), ...some));
    }

    /** Return a text that is cut, with a button to read and one to copy all of it where it is long. */
    long(text, limit = 160) {
      const shown = element("span", { class: "sv-mono", text: sv.cut(text, limit), dir: "ltr" });
      if (sv.visible(text).length <= limit) return shown;
      const copy = sv.iconButton("copy", "Copy all " + sv.plural(text.length, "character"), () => this.copy(text), {
        class: "sv-button sv-small",
      });
      const all = element("button", { type: "button", class: "sv-link", text: "show all" });
      all.addEventListener("click", () => {
        shown.textContent = sv.visible(text);
        shown.classList.add("sv-scroll");
        shown.tabIndex = 0;
        all.remove();
      });
      return element("span", {}, shown, " ", all, copy);
    }

    async copy(text) {
      this.view.announce((await sv.copy(text)) ? "Copied." : "It could not be copied.", true);
    }

    /** Return a button that leads to an item. */
    link(item) {
      const { model, scene } = this.view;
      const made = element("button", {
        type: "button",
        class: "sv-link sv-node-link",
        onclick: () => this.view.go(item),
      });
      made.append(element("b", { text: model.label(item) }));
      const name = model.isGroup(item) || model.isPort(item) ? "" : model.strings[model.name[item]];
      if (name) made.append(" ", element("span", { text: sv.cut(name, 60) }));
      const status = sv.statusText(scene.status[item]);
      if (status) made.append(" ", element("em", { text: status }));
      return made;
    }

    links(items, limit = 40) {
      if (!items.length) return null;
      const list = element(
        "ul",
        { class: "sv-links" },
        ...items
          .slice(0, limit)
          .map((item) => element("li", {}, typeof item === "number" ? this.link(item) : this.long(item))),
      );
      if (items.length > limit) {
        const more = element("button", { type: "button", class: "sv-link", text: `${items.length - limit} more` });
        more.addEventListener("click", () => list.replaceWith(this.links(items, limit * 10)));
        list.append(element("li", {}, more));
      }
      return list;
    }

    table(rows, heads) {
      if (!rows.length) return null;
      const body = element(
        "tbody",
        {},
        ...rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell)))),
      );
      const head = element(
        "thead",
        {},
        element("tr", {}, ...heads.map((text) => (text ? element("th", { text, scope: "col" }) : element("td", {})))),
      );
      return element(
        "div",
        { class: "sv-wide", tabindex: "0", role: "group", "aria-label": heads.filter(Boolean).join(", ") },
        element("table", {}, head, body),
      );
    }

    facts(pairs) {
      const some = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
      if (!some.length) return null;
      return element(
        "dl",
        {},
        ...some.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", {}, value)]),
      );
    }

    node(node) {
      const { model } = this.view;
      const details = model.details[node] || {};
      const name = model.strings[model.name[node]];
      const domain = model.strings[model.domain[node]];
      if (!model.isPort(node))
        this.body.append(
          element(
            "p",
            { class: "sv-name" },
            name ? this.long(name, 240) : element("span", { class: "sv-muted", text: "without a name" }),
          ),
        );
      this.story(node, details);
      this.actions(node);
      const port = model.port[node];
      this.section(
        "About",
        this.facts([
          ["Kind", port >= 0 ? this.text(model.portKind[port]) || model.strings[model.op[node]] : null],
          ["Type", port >= 0 ? this.long(this.text(model.portType[port])) : null],
          ["Domain", domain && port < 0 && domain !== "surgery.port" ? this.long(domain) : null],
          ["In", model.group[node] >= 0 ? this.link(model.n + model.group[node]) : null],
          ["Was called", details.was ? this.long(this.text(details.was)) : null],
          ["Multiply-adds", details.macs ? this.macs(details.macs) : null],
          ["Time", typeof details.seconds === "number" ? sv.duration(details.seconds) : null],
          ["Error", details.error ? this.error(details.error) : null],
          ["Source", details.source ? this.long(this.text(details.source)) : null],
          ["Doc", details.doc ? this.long(this.text(details.doc), 400) : null],
        ]),
      );
      this.operands(node, details);
      const attributes = Object.entries(details.attributes || {});
      this.section(
        "Attributes",
        this.facts(attributes.map(([key, value]) => [sv.cut(key, 60), this.long(this.text(value))])),
      );
      if (details.rule) this.section("Rule", this.rule(this.text(details.rule)));
    }

    /** Return the text of a rule with its lines; what is very long is cut, and can be copied whole. */
    rule(text) {
      const shown = sv.cut(text, 3000).replaceAll("\\u000a", "\n");
      const box = element("pre", { class: "sv-rule", text: shown, tabindex: "0" });
      if (sv.visible(text).length <= 3000) return box;
      const label = "Copy all " + sv.plural(text.length, "character");
      return element(
        "div",
        {},
        box,
        sv.iconButton("copy", label, () => this.copy(text)),
      );
    }

    error(error) {
      const where = this.text(error.where);
      const share = sv.number(100 * error.needed) + " % of the tolerance";
      return element("span", { text: share + (where ? ", in the step " + sv.cut(where, 80) : "") });
    }

    macs(macs) {
      return this.long(typeof macs === "number" ? sv.number(macs) : sv.expression(macs));
    }

    /** Say who made the node from what, what became of it, and how it was altered. */
    story(node, details) {
      const { model } = this.view;
      const [made, gone] = [model.born[node] > 0, model.died[node] >= 0];
      const lines = [];
      const say = (mark, text, state) =>
        lines.push(element("p", { class: "sv-story sv-" + mark }, text + " ", this.stateLink(state)));
      if (made)
        say("added", "Made by " + sv.cut(this.passText(model.pass[node], model.born[node]), 60), model.born[node]);
      for (let at = model.alteredStart[node]; at < model.alteredStart[node + 1]; at++) {
        const row = model.alteredRows[at];
        const state = model.alteredState[row];
        say(
          "altered",
          `Altered by ${sv.cut(this.passText(0, state), 60)}: ${sv.cut(model.strings[model.alteredWhat[row]], 200)}`,
          state,
        );
      }
      if (gone)
        say(
          "removed",
          "Removed by " + sv.cut(this.passText(model.killer[node], model.died[node]), 60),
          model.died[node],
        );
      this.body.append(...lines);
      const rows = (details.origins || []).map((origin) => (typeof origin === "number" ? origin : sv.visible(origin)));
      const origins = made ? (rows.length ? rows : model.origins(node)) : [];
      this.section("Made from", this.links(origins));
      if (gone) {
        const became = model.descendants(node);
        this.section("Became", this.links(became) || this.fate(details));
      }
      const passes = (details.passes || []).map((pass) => this.text(pass));
      if (passes.length > 1)
        this.section("Passes", element("p", { text: passes.map((pass) => sv.cut(pass, 60)).join(", ") }));
    }

    /** Say what stands for a node that became no other one. */
    fate(details) {
      const fate = this.text(details.fate || "");
      return fate ? this.long(fate, 300) : element("p", { class: "sv-muted", text: "Nothing takes its place." });
    }

    passText(pass, state) {
      const { model } = this.view;
      const { pass: own, label } = model.states[state] || {};
      return model.strings[pass] || own || label || "a step";
    }

    stateLink(state) {
      const { model } = this.view;
      // Two models that are compared have no steps.
      if (model.states[state]?.step === undefined) return null;
      return element("button", {
        type: "button",
        class: "sv-link",
        text: "step " + model.stepOf(state),
        onclick: () => this.view.setState(state),
      });
    }

    operands(node, details) {
      const { model } = this.view;
      const value = (name, row) => {
        const text = this.text(name);
        return row < 0
          ? this.long(text, 60)
          : element("button", {
              type: "button",
              class: "sv-link sv-mono",
              text: sv.cut(text, 60),
              onclick: () => this.view.go(row),
            });
      };
      const inputs = details.inputs || this.edgesOf(model.inEdges, model.inStart, node);
      const outputs = details.outputs || this.edgesOf(model.outEdges, model.outStart, node);
      this.section(
        "Inputs",
        this.table(
          inputs.map(([name, type, constant]) => {
            const producer = this.producer(node, name);
            const what =
              name === 0 || name === ""
                ? element("span", { class: "sv-muted", text: "left out" })
                : value(name, producer);
            return [
              what,
              element("span", {}, this.long(this.text(type), 90), constant ? this.constant(constant) : null),
            ];
          }),
          ["Value", "Type"],
        ),
      );
      this.section(
        "Outputs",
        this.table(
          outputs.map(([name, type]) => [value(name, -1), this.long(this.text(type), 90)]),
          ["Value", "Type"],
        ),
      );
      this.section("Used by", this.links(this.consumers(node)));
    }

    edgesOf(edges, start, node) {
      const { model } = this.view;
      const seen = new Map();
      for (const edge of edges.subarray(start[node], start[node + 1]))
        seen.set(model.value[edge], [model.value[edge], model.type[edge]]);
      return Array.from(seen.values());
    }

    consumers(node) {
      const { model, view } = { model: this.view.model, view: this.view };
      const found = new Set();
      for (let at = model.outStart[node]; at < model.outStart[node + 1]; at++) {
        const edge = model.outEdges[at];
        const isGone = model.edgeDied[edge] >= 0 && model.edgeDied[edge] <= view.state;
        if (model.edgeBorn[edge] <= view.state && (!isGone || model.died[node] >= 0) && model.to[edge] >= 0)
          found.add(model.to[edge]);
      }
      return Array.from(found);
    }

    producer(node, name) {
      const { model } = this.view;
      for (let at = model.inStart[node + 1] - 1; at >= model.inStart[node]; at--) {
        const edge = model.inEdges[at];
        if (model.value[edge] === name) return model.from[edge];
      }
      return -1;
    }

    constant(constant) {
      const values = (constant.values || []).map((item) =>
        typeof item === "number" ? sv.number(item) : sv.cut(item, 40),
      );
      const total = (constant.dims || []).reduce((product, dim) => product * dim, 1);
      const text =
        "= " +
        (total === 1 && !constant.dims.length
          ? values[0]
          : "[" + values.join(", ") + (total > values.length ? ", …" : "") + "]");
      const size = constant.bytes === undefined ? "" : sv.bytes(constant.bytes);
      return element("span", {
        class: "sv-constant",
        text: values.length ? text : "constant" + (size && ", " + size),
        title: size || null,
      });
    }

    group(group) {
      const { model, scene, layout } = this.view;
      const item = model.n + group;
      const [alive, added, altered, removed] = scene.counts.subarray(4 * group, 4 * group + 4);
      const kind = model.strings[model.groupKind[group]];
      this.actions(item);
      if (model.isRepeat[group]) this.instances(group);
      this.section(
        "About",
        this.facts([
          [
            "Kind",
            { repeat: "repeated block", scope: "scope", function: "function", subgraph: "subgraph", block: "block" }[
              kind
            ] || sv.cut(kind, 40),
          ],
          ["Name", this.long(model.strings[model.groupName[group]])],
          ["In", model.parent[group] >= 0 ? this.link(model.n + model.parent[group]) : null],
          ["Belongs to", model.groupOwner[group] >= 0 ? this.link(model.groupOwner[group]) : null],
          ["Alike", model.groupCount[group] > 1 ? model.groupCount[group] + " times" : null],
          ["Nodes", alive.toLocaleString("en-US")],
          ["Added", added || null],
          ["Altered", altered || null],
          ["Removed", removed || null],
        ]),
      );
      this.section("Operators", this.operators(group));
      const inside = Array.from(layout.roomItems.subarray(layout.roomStart[group + 1], layout.roomStart[group + 2]));
      this.section(
        "Holds",
        this.links(
          inside.filter((each) => scene.isDrawn(each)),
          25,
        ),
      );
    }

    instances(group) {
      const { model, layout } = this.view;
      const select = element("select", {
        "aria-label": "Instance",
        class: "sv-select",
        onchange: () => this.view.choose(group, Number(select.value)),
      });
      const names = new Map();
      for (let each = 0; each < model.g; each++)
        if (model.parent[each] === group && !names.has(model.groupInstance[each]))
          names.set(model.groupInstance[each], model.groupName[each]);
      for (const [instance, name] of names)
        select.append(
          element("option", {
            value: instance,
            text: `${instance + 1} of ${model.groupCount[group]}: ${sv.cut(model.strings[name], 40)}`,
          }),
        );
      select.value = String(layout.chosen[group]);
      const step = (by) => this.view.choose(group, (layout.chosen[group] + by + names.size) % names.size);
      this.section(
        "Instance",
        element(
          "div",
          { class: "sv-row" },
          sv.iconButton("previous", "Previous instance", () => step(-1)),
          select,
          sv.iconButton("next", "Next instance", () => step(1)),
        ),
      );
    }

    operators(group) {
      const { model, scene } = this.view;
      const counts = new Map();
      for (const node of sv.nodesOf(model, group)) {
        if (![sv.SAME, sv.ADDED, sv.ALTERED].includes(scene.status[node]) || model.isPort(node)) continue;
        counts.set(model.op[node], (counts.get(model.op[node]) || 0) + 1);
      }
      const rows = Array.from(counts)
        .sort((a, b) => b[1] - a[1])
        .slice(0, 30);
      return this.table(
        rows.map(([op, count]) => [
          element("span", { text: sv.cut(model.strings[op], 60) }),
          element("span", { text: count.toLocaleString("en-US") }),
        ]),
        ["Operator", "Count"],
      );
    }

    actions(item) {
      const { model, layout } = this.view;
      const button = (text, run) => element("button", { type: "button", class: "sv-text-button", text, onclick: run });
      const row = element("div", { class: "sv-row sv-actions" });
      if (model.isGroup(item))
        row.append(
          button(layout.open[item - model.n] ? "Close group" : "Open group", () => this.view.toggle(item - model.n)),
        );
      row.append(button("Center", () => this.view.center(item)));
      row.append(
        button("Copy name", () =>
          this.copy(model.strings[model.isGroup(item) ? model.groupName[item - model.n] : model.name[item]]),
        ),
      );
      row.append(button("Save as SVG", () => sv.saveSvg(this.view)));
      if (!(item < model.n && model.isPort(item))) {
        row.append(button("Save as ONNX", () => sv.saveModel(this.view)));
        row.append(button("Copy extract command", () => sv.copyExtractCommand(this.view)));
      }
      this.body.append(row);
    }
  };

  /** Return all nodes in a group, those of inner groups and of all instances too. */
  sv.nodesOf = function (model, group) {
    const isInside = new Uint8Array(model.g);
    for (let k = model.g - 1; k >= 0; k--) {
      const at = model.deepFirst[k];
      isInside[at] = at === group || (model.parent[at] >= 0 && isInside[model.parent[at]]) ? 1 : 0;
    }
    const found = [];
    for (let node = 0; node < model.n; node++)
      if (model.group[node] >= 0 && isInside[model.group[node]]) found.push(node);
    return found;
  };
})(surgeryViewer);
