// A region: as SVG, and as the command that extracts it.
(function (sv) {
  "use strict";

  const MARGIN = 16;

  function xml(text) {
    return text.replace(/[&<>"']/g, (character) => "&#" + character.charCodeAt(0) + ";");
  }

  /** Return {rectangle, items, title}: the selected group, the selected node with its neighbors, or what is visible. */
  sv.region = function (view) {
    const { scene, selected, model } = view;
    if (selected >= 0 && scene.shown[selected]) {
      const items = new Set([selected]);
      if (selected < model.n || scene.shown[selected] === 1) {
        const { out, into } = scene.edgesAt(selected);
        for (const edge of out) items.add(scene.edges.to[edge]);
        for (const edge of into) items.add(scene.edges.from[edge]);
        // The frames of others are larger than a neighborhood.
        for (const item of items) if (scene.shown[item] === 2) items.delete(item);
      }
      let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
      for (const item of items) {
        const [left, top, right, bottom] = scene.rectangle(item);
        [x0, y0, x1, y1] = [Math.min(x0, left), Math.min(y0, top), Math.max(x1, right), Math.max(y1, bottom)];
      }
      return {
        rectangle: [x0, y0, x1, y1],
        only: scene.shown[selected] === 2 ? null : items,
        title: model.label(selected),
      };
    }
    const [x0, y0, x1, y1] = view.camera.view();
    return {
      rectangle: [Math.max(x0, 0), Math.max(y0, 0), Math.min(x1, scene.width), Math.min(y1, scene.height)],
      only: null,
      title: sv.cut(model.title, 60),
    };
  };

  const round = (value) => Math.round(value * 10) / 10;

  /** Return a region, or else the current one, as the text of an SVG file. */
  sv.svg = function (view, region = sv.region(view)) {
    const { rectangle, only, title } = region;
    const { scene, palette } = view;
    const [x0, y0, x1, y1] = [
      rectangle[0] - MARGIN,
      rectangle[1] - MARGIN,
      rectangle[2] + MARGIN,
      rectangle[3] + MARGIN,
    ];
    const isIn = (item) => {
      if (only) return only.has(item);
      const [left, top, right, bottom] = scene.rectangle(item);
      return left < x1 && right > x0 && top < y1 && bottom > y0;
    };
    const parts = [
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${[x0, y0, x1 - x0, y1 - y0].map(round).join(" ")}" width="${round(x1 - x0)}" height="${round(y1 - y0)}" font-family="system-ui, sans-serif" font-size="11.5">`,
      `<title>${xml(title)}</title>`,
      `<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0 1l7 3-7 3z" fill="${palette.edge}"/></marker>`,
      `<pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"><path d="M0 8 8 0" stroke="${palette.removed}" stroke-opacity=".35"/></pattern></defs>`,
      `<rect x="${round(x0)}" y="${round(y0)}" width="100%" height="100%" fill="${palette.bg}"/>`,
    ];
    for (const item of scene.frames) if (isIn(item)) parts.push(frame(view, item));
    parts.push(...edges(view, isIn, only, [x0, y0, x1, y1]));
    for (const item of scene.leaves) if (isIn(item)) parts.push(box(view, item));
    parts.push("</svg>");
    return parts.join("\n") + "\n";
  };

  function rect([left, top, right, bottom], radius, attributes) {
    return `<rect x="${round(left)}" y="${round(top)}" width="${round(right - left)}" height="${round(bottom - top)}" rx="${radius}" ${attributes}/>`;
  }

  function frame(view, item) {
    const { scene, palette, model } = view;
    const [left, top] = scene.rectangle(item);
    const label = xml(model.label(item) + sv.timesOf(scene, item));
    return (
      rect(scene.rectangle(item), 10, `fill="${palette.surface2}" fill-opacity=".6" stroke="${palette.line}"`) +
      `<text x="${round(left + 12)}" y="${round(top + 22)}" font-weight="600" fill="${palette.muted}">${label}</text>`
    );
  }

  function* edges(view, isIn, only, [x0, y0, x1, y1]) {
    const { scene, palette } = view;
    const ghost = [palette.removed, "3 4"];
    const styles = [ghost, ghost, [palette.edge, ""], [palette.added, ""], [palette.muted, "1.5 4"]];
    for (let edge = 0; edge < scene.edges.count; edge++) {
      const path = scene.routes.path(edge);
      const isNear = scene.routes.grid.touches(edge, x0, y0, x1, y1);
      if (only ? !(only.has(scene.edges.from[edge]) && only.has(scene.edges.to[edge])) : !isNear) continue;
      const [color, dash] = styles[scene.edges.kind[edge]];
      yield `<path d="${curve(path)}" fill="none" stroke="${color}" stroke-width="1.2"${scene.edges.kind[edge] < 2 ? ` stroke-opacity="${scene.edges.kind[edge] ? 0.45 : 0.16}"` : ""}${dash ? ` stroke-dasharray="${dash}"` : ""}${scene.edges.kind[edge] === 4 ? "" : ' marker-end="url(#arrow)"'}/>`;
    }
  }

  function curve(path) {
    let text = `M${round(path[0])} ${round(path[1])}`;
    for (let at = 2; at < path.length; at += 2) {
      const [x, y, nextX, nextY] = [path[at - 2], path[at - 1], path[at], path[at + 1]];
      const bend = nextY > y ? (nextY - y) / 2 : Math.max(40, (y - nextY) * 0.4);
      text +=
        Math.abs(nextX - x) < 0.5
          ? `L${round(nextX)} ${round(nextY)}`
          : `C${round(x)} ${round(y + bend)} ${round(nextX)} ${round(nextY - bend)} ${round(nextX)} ${round(nextY)}`;
    }
    return text;
  }

  function box(view, item) {
    const { scene, palette, model, painter } = view;
    const [left, top, right, bottom] = scene.rectangle(item);
    const status = scene.status[item];
    const isGroup = model.isGroup(item);
    const family = isGroup ? { fill: palette.surface, line: palette.line } : palette.families[sv.families(model)[item]];
    const stroke =
      { [sv.ADDED]: palette.added, [sv.ALTERED]: palette.changed, [sv.REMOVED]: palette.removed }[status] ||
      family.line;
    const width = status === sv.ADDED || (status === sv.ALTERED && !isGroup) ? 2.2 : 1;
    const dash = status === sv.REMOVED ? ' stroke-dasharray="4 3"' : "";
    const radius = isGroup ? 8 : model.isPort(item) ? 12 : 5;
    let text = rect(
      [left, top, right, bottom],
      radius,
      `fill="${status === sv.REMOVED ? palette.bg : family.fill}" stroke="${stroke}" stroke-width="${width}"${dash}`,
    );
    if (status === sv.REMOVED) text += rect([left, top, right, bottom], radius, 'fill="url(#hatch)"');
    const label = painter.fit(model.label(item) + sv.timesOf(scene, item), right - left - 5, 11.5, isGroup);
    const decoration = status === sv.REMOVED ? ' text-decoration="line-through"' : "";
    text += `<text x="${round((left + right) / 2)}" y="${round((top + bottom) / 2)}" text-anchor="middle" dominant-baseline="central" fill="${status === sv.REMOVED ? palette.removed : palette.text}"${isGroup ? ' font-weight="600"' : ""}${decoration}>${xml(label)}</text>`;
    const badge = { [sv.ADDED]: "+", [sv.ALTERED]: "~" }[isGroup ? -1 : status];
    if (badge)
      text += `<circle cx="${round(right - 1)}" cy="${round(top + 1)}" r="6.5" fill="${stroke}"/><text x="${round(right - 1)}" y="${round(top + 1)}" text-anchor="middle" dominant-baseline="central" font-weight="700" fill="${palette.bg}">${badge}</text>`;
    return scene.isFaded(item) ? `<g opacity="${sv.FADED}">${text}</g>` : text;
  }

  /** Save the current region as an SVG file. */
  sv.saveSvg = function (view) {
    sv.save(view, [sv.svg(view)], "image/svg+xml", ".svg");
  };

  /** Save parts as a file with the name of the current region. */
  sv.save = function (view, parts, type, suffix) {
    const url = URL.createObjectURL(new Blob(parts, { type }));
    const name =
      sv
        .region(view)
        .title.replace(/[^\w.-]+/g, "-")
        .replace(/^[-.]+|[-.]+$/g, "") || "graph";
    const link = sv.element("a", { href: url, download: name + suffix });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    view.announce("Saved as " + name + suffix + ".", true);
  };

  const CONTROL = /[\u0000-\u001f\u007f-\u009f]/gu;

  /** Return a word for a POSIX shell. A control character is written out: a terminal obeys those of a pasted text. */
  sv.quote = function (word) {
    if (word.search(CONTROL) >= 0) {
      const bytes = (character) =>
        Array.from(new TextEncoder().encode(character), (byte) => "\\x" + byte.toString(16).padStart(2, "0")).join("");
      return "$'" + word.replace(/[\\']/g, "\\$&").replace(CONTROL, bytes) + "'";
    }
    return /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";
  };

  /** Return the values that lead into and out of a set of nodes, in the chosen state: {inputs, outputs}. */
  sv.boundary = function (model, nodes, state) {
    const isIn = new Uint8Array(model.n);
    for (const node of nodes) isIn[node] = 1;
    const inputs = new Set();
    const outputs = new Set();
    for (let edge = 0; edge < model.m; edge++) {
      const died = model.edgeDied[edge];
      if (model.edgeBorn[edge] > state || (died >= 0 && died <= state)) continue;
      const [from, to] = [model.from[edge], model.to[edge]];
      const [a, b] = [from >= 0 && isIn[from], to >= 0 && isIn[to]];
      if (from >= 0 && !a && b) inputs.add(model.strings[model.value[edge]]);
      if (a && !b && to >= 0) outputs.add(model.strings[model.value[edge]]);
    }
    return { inputs: Array.from(inputs), outputs: Array.from(outputs) };
  };

  /** Return the nodes of the selection, or of what is visible, in the chosen state. */
  sv.nodesOfRegion = function (view) {
    const { model, scene, selected, state } = view;
    let nodes;
    if (selected >= 0) nodes = model.isGroup(selected) ? sv.nodesOf(model, selected - model.n) : [selected];
    else {
      const [x0, y0, x1, y1] = view.camera.view();
      const leaves = Array.from(scene.leaves).filter((item) => {
        const [left, top, right, bottom] = scene.rectangle(item);
        return left < x1 && right > x0 && top < y1 && bottom > y0;
      });
      nodes = leaves.flatMap((item) => (model.isGroup(item) ? sv.nodesOf(model, item - model.n) : [item]));
    }
    return nodes.filter(
      (node) => !model.isPort(node) && model.born[node] <= state && (model.died[node] < 0 || model.died[node] > state),
    );
  };

  /**
   * Return the command that extracts the selection, or what is visible, as a model of its own; null if no file holds
   * the graph of this state.
   */
  sv.extractCommand = function (view) {
    const { model, state } = view;
    const file = model.states[state].file || (model.states.length === 1 && (model.title || "model.onnx"));
    if (!file) return null;
    const { inputs, outputs } = sv.boundary(model, sv.nodesOfRegion(view), state);
    // A comma or wildcard in a name is read by the command: the flags may be repeated, names that have one need a look.
    const flags = (name, values) => {
      const plain = values.filter((value) => !value.includes(","));
      const rest = values.filter((value) => value.includes(","));
      return [plain.join(","), ...rest]
        .filter(Boolean)
        .map((value) => ` ${name} ${sv.quote(value)}`)
        .join("");
    };
    return `surgery extract ${sv.quote(file)}${flags("--inputs", inputs)}${flags("--outputs", outputs)} -o region.onnx`;
  };

  /** Copy that command, or say why there is none. */
  sv.copyExtractCommand = async function (view) {
    const command = sv.extractCommand(view);
    if (command === null) view.announce("No file holds the graph after this step. Choose the first or the last.", true);
    else view.announce((await sv.copy(command)) ? "Command copied." : "It could not be copied.", true);
  };

  /** Copy the command that opens the model in the workbench: a file cannot start its server. */
  sv.copyOpenCommand = async function (view) {
    const command = view.options.opens.map(sv.quote).join(" ");
    const isDone = await sv.copy(command);
    view.announce((isDone ? "Copied; run it in a terminal: " : "It could not be copied: ") + command, true);
  };
})(surgeryViewer);
