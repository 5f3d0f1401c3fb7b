// What tells changes, repeats and the selection: by form first, by color second.
(function (sv) {
  "use strict";

  /** Return " ×12" for a repeat with its chosen instance where it is opened, else "". */
  sv.timesOf = function (scene, item) {
    const { model, layout } = scene;
    const group = item - model.n;
    if (group < 0 || !model.isRepeat[group] || model.groupCount[group] < 2) return "";
    const count = model.groupCount[group];
    return layout.open[group] ? `   ${layout.chosen[group] + 1} of ${count}` : ` ×${count}`;
  };

  /** Return how a group changed: "+3 −5 ~1". */
  sv.changesOf = function (scene, group) {
    const [, added, altered, removed] = scene.counts.subarray(4 * group, 4 * group + 4);
    return [added && "+" + added, removed && "−" + removed, altered && "~" + altered].filter(Boolean).join(" ");
  };

  /** Draw the sheets behind repeats. */
  sv.drawStacks = function (painter, first, end) {
    const { context, palette, scene, k } = painter;
    for (let sheet = 2; sheet >= 1; sheet--) {
      context.beginPath();
      for (let at = first; at < end; at++) {
        const item = painter.byStyle[at];
        if (scene.model.groupCount[item - scene.model.n] < 2) continue;
        painter.locate(item);
        const shift = 3.5 * sheet * k;
        painter.left += shift;
        painter.right += shift;
        painter.top += shift;
        painter.bottom += shift;
        painter.box(8 * k);
      }
      context.fillStyle = palette.surface2;
      context.fill();
      context.strokeStyle = palette.line;
      context.lineWidth = 1;
      context.stroke();
    }
  };

  function hatchOf(painter) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const context = tile.getContext("2d");
    context.strokeStyle = painter.palette.removed;
    context.globalAlpha = 0.32;
    context.lineWidth = 1.1;
    context.beginPath();
    for (const shift of [-8, 0, 8]) {
      context.moveTo(shift, 8);
      context.lineTo(shift + 8, 0);
    }
    context.stroke();
    return painter.context.createPattern(tile, "repeat");
  }

  /** The opacity of removed constants. */
  sv.FADED = 0.35;

  /** Draw outlines and badges of boxes that were added, altered or removed. */
  sv.drawMarks = function (painter, count) {
    const { palette } = painter;
    ghosts(painter, count, (item) => painter.scene.isFaded(item), sv.FADED);
    ghosts(painter, count, (item) => !painter.scene.isFaded(item), 1);
    outlines(painter, count, sv.ADDED, palette.added, []);
    outlines(painter, count, sv.ALTERED, palette.changed, []);
    if (sv.NODE_HEIGHT * painter.k < 9) return;
    badges(painter, count, sv.ADDED, palette.added);
    badges(painter, count, sv.ALTERED, palette.changed);
  };

  function collect(painter, count, status, isWanted = () => true) {
    const { scene, byStyle, context } = painter;
    let any = false;
    context.beginPath();
    for (let at = 0; at < count; at++) {
      const item = byStyle[at];
      if (scene.status[item] !== status || (status === sv.ALTERED && item >= scene.model.n)) continue;
      if (!isWanted(item)) continue;
      painter.locate(item);
      painter.box((painter.scene.model.isGroup(item) ? 8 : 5) * painter.k);
      any = true;
    }
    return any;
  }

  function ghosts(painter, count, isWanted, alpha) {
    const { context, palette, k } = painter;
    if (!collect(painter, count, sv.REMOVED, isWanted)) return;
    context.fillStyle = palette.bg;
    context.fill();
    context.globalAlpha = alpha;
    if (k >= 0.3) {
      context.fillStyle = painter.hatch ??= hatchOf(painter);
      context.fill();
    }
    context.strokeStyle = palette.removed;
    context.globalAlpha = 0.75 * alpha;
    context.lineWidth = 1;
    context.setLineDash([4 * Math.min(1, k + 0.3), 3 * Math.min(1, k + 0.3)]);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  function outlines(painter, count, status, color) {
    const { context, k } = painter;
    if (!collect(painter, count, status)) return;
    context.strokeStyle = color;
    context.lineWidth = Math.max(1.2, 2.2 * Math.min(1.2, k));
    context.stroke();
  }

  function badges(painter, count, status, color) {
    const { context, palette, scene, byStyle, k } = painter;
    const radius = 6.5 * Math.max(0.7, Math.min(1.4, k));
    const each = (draw) => {
      for (let at = 0; at < count; at++) {
        const item = byStyle[at];
        if (scene.status[item] !== status || item >= scene.model.n) continue;
        painter.locate(item);
        draw(painter.right - 1, painter.top + 1);
      }
    };
    context.beginPath();
    each((x, y) => {
      context.moveTo(x + radius, y);
      context.arc(x, y, radius, 0, 7);
    });
    context.fillStyle = color;
    context.fill();
    context.strokeStyle = palette.bg;
    context.lineWidth = 1.5;
    context.stroke();
    context.beginPath();
    const arm = radius * 0.52;
    each((x, y) => {
      if (status === sv.ADDED) {
        context.moveTo(x - arm, y);
        context.lineTo(x + arm, y);
        context.moveTo(x, y - arm);
        context.lineTo(x, y + arm);
      } else {
        context.moveTo(x - arm, y + arm * 0.3);
        context.bezierCurveTo(x - arm * 0.4, y - arm, x + arm * 0.4, y + arm, x + arm, y - arm * 0.3);
      }
    });
    context.strokeStyle = palette.bg;
    context.lineWidth = Math.max(1.2, radius * 0.26);
    context.stroke();
  }

  /** Draw the title of a closed group, and below it what it holds. */
  sv.drawGroupLabel = function (painter, item) {
    const { context, palette, scene, k } = painter;
    const group = item - scene.model.n;
    painter.locate(item);
    const width = painter.right - painter.left;
    if (width < 24) return;
    const isGhost = scene.status[item] === sv.REMOVED;
    const hasTwo = sv.GROUP_HEIGHT * k >= 26;
    const size = Math.max(8, 12 * k);
    const middle = (painter.top + painter.bottom) / 2;
    context.textAlign = "left";
    context.fillStyle = isGhost ? palette.removed : palette.muted;
    const arrow = hasTwo ? 11.5 * k : 4;
    if (hasTwo) painter.chevron(painter.left + 10.5 * k, hasTwo ? middle - 7.5 * k : middle, 4 * k, false);
    const left = painter.left + arrow + 8 * Math.min(1, k);
    context.font = `600 ${size}px ${palette.sans}`;
    context.fillStyle = isGhost ? palette.removed : palette.text;
    const top = hasTwo ? middle - 7.5 * k : middle;
    const written = painter.write(scene.model.label(item), left, top, painter.right - left - 5 * k, size, true);
    if (isGhost && size >= sv.LEAST_CROSSED) context.fillRect(left, top, written, 1);
    times(painter, item, size * 0.85);
    if (!hasTwo) return;
    const small = Math.max(8.5, 10.5 * k);
    context.font = `${small}px ${palette.sans}`;
    context.fillStyle = palette.muted;
    const alive = scene.counts[4 * group];
    const line = isGhost ? "removed" : sv.plural(alive, "node");
    context.fillText(line, left, middle + 8.5 * k);
    parts(painter, group, left + painter.measure(line + "  ", small), middle + 8.5 * k, small);
  };

  /** Draw how often a block is repeated, over the corner of its box. */
  function times(painter, item, size) {
    const { context, palette } = painter;
    const text = sv.timesOf(painter.scene, item).trim();
    if (!text) return;
    context.font = `600 ${size}px ${palette.sans}`;
    const width = painter.measure(text, size) * 1.13 + size * 0.9;
    const x = painter.right - width * 0.7;
    context.beginPath();
    context.roundRect(x, painter.top - size * 0.7, width, size * 1.4, size * 0.7);
    context.fillStyle = palette.surface;
    context.fill();
    context.strokeStyle = palette.muted;
    context.lineWidth = 1;
    context.stroke();
    context.fillStyle = palette.text;
    context.fillText(text, x + size * 0.45, painter.top + size * 0.05);
  }

  function parts(painter, group, x, y, size) {
    const { context, palette, scene } = painter;
    const colors = [palette.added, palette.removed, palette.changed];
    const [, added, altered, removed] = scene.counts.subarray(4 * group, 4 * group + 4);
    [
      ["+", added],
      ["−", removed],
      ["~", altered],
    ].forEach(([sign, count], k) => {
      if (!count) return;
      const text = sign + count;
      const width = painter.measure(text, size);
      if (x + width > painter.right - 4) return;
      context.fillStyle = colors[k];
      context.fillText(text, x, y);
      x += width + size * 0.6;
    });
  }

  /** Draw shapes next to where edges begin, once for each value. */
  sv.drawTypes = function (painter, count) {
    const { context, palette, scene, foundEdges, k } = painter;
    const { edges, model } = scene;
    const size = Math.min(11, 8.5 * k);
    const seen = (painter.typed ??= new Set());
    seen.clear();
    context.font = `${size}px ${palette.sans}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = palette.muted;
    for (let at = 0; at < count; at++) {
      const edge = foundEdges[at];
      const item = edges.from[edge];
      if (edges.kind[edge] < 2 || edges.kind[edge] > 3 || item >= model.n || seen.has(item)) continue;
      seen.add(item);
      const shape = (painter.shapes ??= new Map());
      const type = model.type[edges.first[edge]];
      let text = shape.get(type);
      if (text === undefined) shape.set(type, (text = sv.cut(model.shape(type), 26)));
      if (!text) continue;
      painter.locate(item);
      context.fillText(text, (painter.left + painter.right) / 2 + 5, painter.bottom + 7 * k);
    }
  };

  /** Draw the edges and neighbors of the selected box, its outline, and that of the box under the pointer. */
  sv.drawSelection = function (painter) {
    const { context, palette, scene, view, k } = painter;
    if (view.hovered >= 0 && view.hovered !== view.selected && scene.shown[view.hovered]) {
      outline(painter, view.hovered, palette.muted, 1.25, 1);
    }
    for (const each of view.lit)
      if (each !== view.selected && scene.shown[each]) outline(painter, each, palette.accent, 1.75, 3);
    if (view.selected < 0) return;
    const item = scene.shown[view.selected] ? view.selected : scene.rep[view.selected];
    if (!scene.shown[item]) return;
    const { out, into } = scene.edgesAt(item);
    for (const [edges, far, dash] of [
      [into, scene.edges.from, []],
      [out, scene.edges.to, [7, 3]],
    ]) {
      const some = edges.length > 400 ? edges.subarray(0, 400) : edges;
      context.beginPath();
      for (const edge of some) painter.trace(edge);
      context.strokeStyle = palette.accent;
      context.lineWidth = 2 * Math.max(0.7, Math.min(1.3, k));
      context.setLineDash(dash);
      context.stroke();
      context.setLineDash([]);
      context.beginPath();
      if (k >= 0.35) for (const edge of some) painter.arrow(edge, 1.3);
      context.fillStyle = palette.accent;
      context.fill();
      for (const edge of some) if (scene.shown[far[edge]] === 1) outline(painter, far[edge], palette.accent, 1.3, 0);
    }
    outline(painter, item, palette.accent, 2.5, 3);
    if (view.focusVisible) outline(painter, item, palette.focus, 2, 6.5);
  };

  function outline(painter, item, color, width, distance) {
    const { context } = painter;
    painter.locate(item);
    // At least 6 px, so that it is found on the screen.
    const grow = Math.max(distance, (6 - (painter.bottom - painter.top)) / 2);
    painter.left -= grow;
    painter.top -= grow;
    painter.right += grow;
    painter.bottom += grow;
    context.beginPath();
    painter.box(5 * Math.min(1, painter.k) + distance);
    context.strokeStyle = color;
    context.lineWidth = width;
    context.stroke();
  }
})(surgeryViewer);
