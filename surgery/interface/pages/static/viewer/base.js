// The namespace of the viewer, and helpers that all of its files use.
var surgeryViewer = (function () {
  "use strict";

  const sv = {};

  // Sizes of boxes in px. The layout in Python uses the same.
  sv.NODE_HEIGHT = 24;
  sv.GROUP_HEIGHT = 40;
  sv.ROW_GAP = 28;
  sv.BOX_GAP = 16;
  // Inside of an opened group: the title, and the distance to its frame.
  sv.HEADER = 34;
  sv.PADDING = 18;

  // Controls, marks of direction and what has no width: a name that holds them must not change what is read.
  const UNSEEN = new RegExp(
    "[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f" +
      "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\ud800-\\udfff]" +
      "|[\\u{e0000}-\\u{e0fff}]",
    "gu",
  );

  function escaped(character) {
    return "\\u" + character.codePointAt(0).toString(16).padStart(4, "0");
  }

  /** Return `text` with characters that cannot be seen written as \u202e. */
  sv.visible = function (text) {
    return String(text).replace(UNSEEN, escaped);
  };

  /** Return `text`, visible, with its middle left out beyond `limit` characters. */
  sv.cut = function (text, limit) {
    const whole = String(text);
    // What is far beyond the limit is not escaped first: it may have megabytes.
    const some = whole.length > 8 * limit ? whole.slice(0, 4 * limit) + "…" + whole.slice(-4 * limit) : whole;
    const shown = sv.visible(some);
    if (shown.length <= limit) return shown;
    const tail = Math.floor(limit / 3);
    return shown.slice(0, limit - tail - 1) + "…" + shown.slice(shown.length - tail);
  };

  /** Return an element. Text is set as text, never parsed as markup. */
  sv.element = function (tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") made.textContent = value;
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children) if (child !== null && child !== undefined) made.append(child);
    return made;
  };

  const SVG = "http://www.w3.org/2000/svg";
  const ICONS = {
    search: "M8.5 3.5a5 5 0 1 1 0 10 5 5 0 0 1 0-10M12.2 12.2 16.5 16.5",
    plus: "M10 4v12M4 10h12",
    minus: "M4 10h12",
    fit: "M4 8V4h4M12 4h4v4M16 12v4h-4M8 16H4v-4",
    close: "M5 5l10 10M15 5 5 15",
    next: "M8 4.5 13.5 10 8 15.5",
    previous: "M12 4.5 6.5 10l5.5 5.5",
    play: "M6.5 4.5 15.5 10 6.5 15.5z",
    pause: "M7 4.5v11M13 4.5v11",
    side: "M3.5 4.5h13v11h-13zM8 4.5v11",
    export: "M10 3.5v8.5M6.5 8.8 10 12.2l3.5-3.4M4 15.8h12",
    legend: "M4 5.5h2.5M4 10h2.5M4 14.5h2.5M9 5.5h7M9 10h7M9 14.5h7",
    expand: "M4 8l6-5 6 5M4 12l6 5 6-5",
    collapse: "M4 3l6 5 6-5M4 17l6-5 6 5",
    ghost: "M4 10c2-3.5 4-5 6-5s4 1.5 6 5c-2 3.5-4 5-6 5s-4-1.5-6-5M10 8.2a1.8 1.8 0 1 1 0 3.6 1.8 1.8 0 0 1 0-3.6",
    edit: "M4 16l1-4 8.5-8.5 3 3L8 15zM11.5 5.5l3 3",
    copy: "M7 7V3.5h9.5V13H13M3.5 7H13v9.5H3.5z",
  };

  /** Return an icon as inline SVG, hidden from screen readers. */
  sv.icon = function (name) {
    const svg = document.createElementNS(SVG, "svg");
    const path = document.createElementNS(SVG, "path");
    svg.setAttribute("viewBox", "0 0 20 20");
    svg.setAttribute("class", "sv-icon");
    svg.setAttribute("aria-hidden", "true");
    svg.setAttribute("focusable", "false");
    path.setAttribute("d", ICONS[name]);
    svg.append(path);
    return svg;
  };

  /** Return a button with an icon, whose label is also its tooltip; `shown` is the part of it next to the icon. */
  sv.iconButton = function (icon, label, onclick, attributes, shown) {
    const made = sv.element("button", {
      type: "button",
      class: "sv-button",
      title: label,
      "aria-label": label,
      onclick,
      ...attributes,
    });
    made.append(sv.icon(icon));
    if (shown) {
      made.classList.add("sv-labelled");
      made.append(sv.element("span", { class: "sv-label", text: shown }));
    }
    return made;
  };

  /** Return `count` with the right noun: plural(1, "node") is "1 node". */
  sv.plural = function (count, noun) {
    return count.toLocaleString("en-US") + " " + noun + (count === 1 ? "" : "s");
  };

  /** Return a number as people write it: 1.2e-7, 0.034, 12.3 M. */
  sv.number = function (value) {
    const size = Math.abs(value);
    if (value === 0 || !Number.isFinite(value)) return String(value);
    if (size < 1e-3) return value.toExponential(1);
    if (size < 1e4) return String(Number(value.toPrecision(4)));
    for (const [factor, unit] of [
      [1e12, "T"],
      [1e9, "G"],
      [1e6, "M"],
      [1e3, "k"],
    ]) {
      if (size >= factor) return Number((value / factor).toPrecision(3)) + " " + unit;
    }
    return String(value);
  };

  /** Return an expression in dims as people write it: "1025171456*batch**2" is "1.03 G × batch²". */
  sv.expression = function (text) {
    return String(text)
      .replace(/\*\*(\d+)(?![\w.])/g, (_, power) => power.replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]))
      .replace(/(?<!\*)\*(?!\*)/g, " × ")
      .replace(/(?<![\w.])\d{4,}(?![\w.])/g, (digits) => sv.number(Number(digits)));
  };

  /** Return seconds with a unit. */
  sv.duration = function (seconds) {
    if (seconds >= 1) return Number(seconds.toPrecision(3)) + " s";
    if (seconds >= 1e-3) return Number((seconds * 1e3).toPrecision(3)) + " ms";
    return Number((seconds * 1e6).toPrecision(3)) + " µs";
  };

  /** Return bytes with a unit. */
  sv.bytes = function (count) {
    if (count < 1024) return sv.plural(count, "byte");
    const step = Math.min(4, Math.floor(Math.log2(count) / 10));
    return Number((count / 1024 ** step).toPrecision(3)) + " " + ["", "KiB", "MiB", "GiB", "TiB"][step];
  };

  /** Put `text` into the clipboard, also where the page is a local file; return whether it is there. */
  sv.copy = async function (text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = sv.element("textarea", { class: "sv-unseen", "aria-hidden": "true" });
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };

  /** What tells its listeners that something happened. */
  sv.Events = class {
    constructor() {
      this.listeners = new Map();
    }

    on(name, listener) {
      if (!this.listeners.has(name)) this.listeners.set(name, []);
      this.listeners.get(name).push(listener);
    }

    tell(name, detail) {
      for (const listener of this.listeners.get(name) || []) listener(detail);
    }
  };

  /** Decode the drawing document in `script`: base64 of raw deflate of JSON. */
  sv.inflate = async function (script) {
    const packed = atob(script.textContent.trim());
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return JSON.parse(await new Response(stream).text());
  };

  /** Decode the document in `script` and mount the viewer in `element`. */
  sv.boot = async function (element, script, options) {
    return sv.mount(element, await sv.inflate(script), options);
  };

  return sv;
})();
