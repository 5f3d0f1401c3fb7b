// Where the cursor is in a recipe: the keys that lead there, and the word that it is in.
(function (sv) {
  "use strict";

  const KEY = /^(?:"([^"]*)"|'([^']*)'|([^\s"'[\]{},#&*!|>%@`-][^:#]*?|-[^\s:#][^:#]*?))\s*:(?=\s|$)/;

  /** Take the dashes and the key at the beginning of a line. Numbers stand for items of lists. */
  function head(line) {
    const found = [];
    let at = line.length - line.trimStart().length;
    for (;;) {
      const dash = /^-(\s+|$)/.exec(line.slice(at));
      if (!dash) break;
      found.push({ indent: at, key: 0 });
      at += dash[0].length;
    }
    const key = KEY.exec(line.slice(at));
    if (key) {
      found.push({ indent: at, key: key[1] ?? key[2] ?? key[3] });
      at += key[0].length;
    }
    return { found, at, indent: found.length ? found[0].indent : at };
  }

  function enter(stack, indent, isItem) {
    while (stack.length) {
      const last = stack[stack.length - 1];
      if (last.indent < indent || (isItem && last.indent === indent && last.key !== 0)) return;
      stack.pop();
    }
  }

  /** Follow `{a: 1, b: [` up to its end; return the keys that are open, the last word, and whether it is a value. */
  function flow(text) {
    const open = [];
    let start = 0;
    let quote = "";
    for (let at = 0; at < text.length; at++) {
      const mark = text[at];
      const last = open[open.length - 1];
      if (quote) {
        if (mark === quote) quote = "";
      } else if ((mark === '"' || mark === "'") && !text.slice(start, at).trim()) quote = mark;
      else if (mark === "{" || mark === "[") {
        open.push({ isMap: mark === "{", key: mark === "{" ? null : 0 });
        start = at + 1;
      } else if (mark === "}" || mark === "]") {
        open.pop();
        start = at + 1;
      } else if (mark === "," && last) {
        if (last.isMap) last.key = null;
        start = at + 1;
      } else if (mark === ":" && last?.isMap && last.key === null && /\s|^$/.test(text[at + 1] || "")) {
        last.key = text.slice(start, at).trim();
        start = at + 1;
      }
    }
    return { open, word: text.slice(start).trimStart(), isQuoted: quote !== "" };
  }

  /**
   * Return the place of an offset: `path` has keys, and 0 for an item of a list; `word` is what is typed of it so far.
   * `isKey` and `isValue` say what may stand there. Null in a comment, and in a text of several lines.
   */
  sv.yamlPlace = function yamlPlace(text, offset) {
    const lines = text.slice(0, offset).split("\n");
    const current = lines.pop();
    const stack = [];
    let block = -1;
    for (const line of lines) {
      if (!line.trim() || line.trimStart().startsWith("#")) continue;
      const { found, at, indent } = head(line);
      if (block >= 0 && line.length - line.trimStart().length > block) continue;
      enter(stack, indent, found[0]?.key === 0);
      stack.push(...found);
      block = /^\s*[|>][-+\d]*\s*(#.*)?$/.test(line.slice(at)) ? indent : -1;
    }
    if (/(^|\s)#/.test(current)) return null;
    const { found, at, indent } = head(current);
    if (block >= 0 && (indent > block || !current.trim())) return null;
    enter(stack, indent, found[0]?.key === 0);
    const path = [...stack, ...found].map((one) => one.key);
    const rest = current.slice(at);
    const inner = flow(rest);
    if (inner.isQuoted) return null;
    if (inner.open.length) {
      for (const { key } of inner.open) if (key !== null) path.push(key);
      const last = inner.open[inner.open.length - 1];
      const isKey = last.isMap && last.key === null;
      return { path, word: inner.word, isKey, isValue: !isKey, isFlow: true };
    }
    const hasKey = found.length > 0 && found[found.length - 1].key !== 0;
    if (hasKey && !/^\s/.test(rest)) return null;
    return { path, word: rest.trimStart(), isKey: !hasKey, isValue: hasKey || found.length > 0, isFlow: false };
  };
})(surgeryViewer);
