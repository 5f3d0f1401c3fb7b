// What the steps did, as groups of alike sites: "fuse-gelu: 12 × Div+Erf+Add+Mul+Mul → Gelu".
(function (sv) {
  "use strict";

  const MOST_OPS = 9;

  // An event is a node that was removed (its row), made (n + row), or a row of the table of altered nodes (2 n + row).
  function unite(model) {
    const { n } = model;
    const up = Int32Array.from({ length: 2 * n + model.alteredNode.length }, (_, k) => k);
    const root = (k) => {
      while (up[k] !== k) k = up[k] = up[up[k]];
      return k;
    };
    for (let link = 0; link < model.linkFrom.length; link++) {
      const [from, to] = [model.linkFrom[link], model.linkTo[link]];
      if (model.died[from] < 0 || model.born[to] <= 0) continue;
      const [a, b] = [root(from), root(n + to)];
      up[Math.max(a, b)] = Math.min(a, b);
    }
    return root;
  }

  function eventsOf(model) {
    const { n } = model;
    const events = [];
    for (let node = 0; node < n; node++) {
      if (model.died[node] >= 0) events.push(node);
      if (model.born[node] > 0) events.push(n + node);
    }
    for (let row = 0; row < model.alteredNode.length; row++) events.push(2 * n + row);
    return events;
  }

  function nodeOf(model, event) {
    return event < 2 * model.n ? event % model.n : model.alteredNode[event - 2 * model.n];
  }

  function stateOf(model, event) {
    if (event < model.n) return model.died[event];
    return event < 2 * model.n ? model.born[event - model.n] : model.alteredState[event - 2 * model.n];
  }

  function passOf(model, event) {
    const state = model.states[stateOf(model, event)] || {};
    const own = event < model.n ? model.killer[event] : event < 2 * model.n ? model.pass[event - model.n] : 0;
    return model.strings[own] || state.pass || state.label || "changed";
  }

  /** Return "Div+Erf+Mul": operators in the order of the graph, equal neighbors as "3 Mul". */
  function opsOf(model, nodes) {
    const runs = [];
    for (const node of nodes) {
      const label = model.label(node);
      const last = runs[runs.length - 1];
      if (last && last[0] === label) last[1]++;
      else runs.push([label, 1]);
    }
    const shown = runs.slice(0, MOST_OPS).map(([label, count]) => (count > 1 ? count + " " + label : label));
    return shown.join(" + ") + (runs.length > MOST_OPS ? " + …" : "");
  }

  function signature(model, site) {
    const [removed, added] = [opsOf(model, site.removed), opsOf(model, site.added)];
    if (removed && added) return removed + " → " + added;
    if (removed) return removed + " removed";
    if (added) return added + " added";
    return model.label(site.altered[0]) + " altered" + (site.what ? ": " + sv.cut(site.what, 60) : "");
  }

  function sitesOf(model) {
    const root = unite(model);
    const sites = new Map();
    for (const event of eventsOf(model)) {
      const key = root(event);
      let site = sites.get(key);
      if (!site) {
        site = {
          removed: [],
          added: [],
          altered: [],
          state: stateOf(model, event),
          pass: passOf(model, event),
          what: "",
        };
        sites.set(key, site);
      }
      const kind = event < model.n ? "removed" : event < 2 * model.n ? "added" : "altered";
      site[kind].push(nodeOf(model, event));
      if (kind === "altered") site.what ||= model.strings[model.alteredWhat[event - 2 * model.n]];
      site.state = Math.min(site.state, stateOf(model, event));
    }
    return sites.values();
  }

  // What the document says about its changes, which names them better than the lineage does.
  function* givenSites(model, changes) {
    for (let row = 0; row < changes.state.length; row++) {
      const state = changes.state[row];
      const site = { removed: [], added: [], altered: [], state, what: "" };
      for (const node of changes.nodes[row]) {
        if (model.died[node] === state) site.removed.push(node);
        else if (model.born[node] === state) site.added.push(node);
        else site.altered.push(node);
      }
      site.pass = model.strings[changes.by[row]] || (model.states[state] || {}).label || "changed";
      site.text = sv.cut(model.strings[changes.what[row]], 200).replaceAll(" -> ", " → ");
      yield site;
    }
  }

  /**
   * Return the changes of all states: [{pass, first, nodes, kinds: [{text, sites: [{removed, added, altered, state}]}]}],
   * in the order in which the passes first did something. Each changed node is in a site.
   */
  sv.changes = function (model) {
    const { changes } = model.document;
    const passes = new Map();
    for (const site of changes ? givenSites(model, changes) : sitesOf(model)) {
      let pass = passes.get(site.pass);
      if (!pass) passes.set(site.pass, (pass = { pass: site.pass, first: site.state, nodes: 0, kinds: new Map() }));
      pass.first = Math.min(pass.first, site.state);
      pass.nodes += site.removed.length + site.added.length + site.altered.length;
      const text = site.text || signature(model, site);
      let kind = pass.kinds.get(text);
      if (!kind) pass.kinds.set(text, (kind = { text, sites: [] }));
      kind.sites.push(site);
    }
    const list = Array.from(passes.values()).sort((a, b) => a.first - b.first);
    for (const pass of list)
      pass.kinds = Array.from(pass.kinds.values()).sort((a, b) => b.sites.length - a.sites.length);
    return list;
  };

  /** Return the node that stands for a site: what was made, else what was removed or altered. */
  sv.siteNode = function (site) {
    return site.added[0] ?? site.altered[0] ?? site.removed[0];
  };
})(surgeryViewer);
