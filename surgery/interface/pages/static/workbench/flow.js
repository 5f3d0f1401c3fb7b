// Values as recipes write them on one line: `conv`, `[1, batch, 224]`, `{op: Relu}`.
(function (sv) {
  "use strict";

  const PLAIN = /^[^\s,[\]{}:#&*!|>'"%@`-][^,[\]{}:#\n]*$/;
  const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/;
  const WORDS = new Map([["true", true], ["false", false], ["null", null], ["~", null]]);

  /** Return a value as text on one line; texts have quotes only where they need them. */
  function show(value) {
    if (Array.isArray(value)) return "[" + value.map(show).join(", ") + "]";
    if (value && typeof value === "object")
      return "{" + Object.entries(value).map(([key, item]) => `${show(key)}: ${show(item)}`).join(", ") + "}";
    if (typeof value !== "string") return JSON.stringify(value ?? null);
    const isPlain = PLAIN.test(value) && value.trim() === value && !NUMBER.test(value) && !WORDS.has(value);
    return isPlain ? value : JSON.stringify(value);
  }

  /** Reads a value, character by character. A text that does not fit is taken as it is. */
  class Reader {
    constructor(text) {
      this.text = text;
      this.at = 0;
    }

    space() {
      while (/\s/.test(this.text[this.at] || "")) this.at++;
    }

    accept(mark) {
      this.space();
      if (this.text[this.at] !== mark) return false;
      this.at++;
      return true;
    }

    value(stops) {
      if (this.accept("[")) return this.items("]", () => this.value(",]"));
      if (this.accept("{")) return Object.fromEntries(this.items("}", () => this.pair()));
      const quote = this.text[this.at];
      if (quote === '"' || quote === "'") return this.quoted(quote);
      const start = this.at;
      while (this.at < this.text.length && !stops.includes(this.text[this.at])) this.at++;
      return scalar(this.text.slice(start, this.at).trim());
    }

    items(closing, item) {
      const found = [];
      while (!this.accept(closing)) {
        if (found.length && !this.accept(",")) throw new SyntaxError("a comma is missing");
        if (this.accept(closing)) break;
        if (this.at >= this.text.length) throw new SyntaxError(`'${closing}' is missing`);
        found.push(item());
      }
      return found;
    }

    pair() {
      this.space();
      const key = this.value(":,}");
      if (!this.accept(":")) throw new SyntaxError("':' is missing");
      return [String(key), this.value(",}")];
    }

    quoted(quote) {
      let end = this.at + 1;
      while (end < this.text.length && this.text[end] !== quote) end += quote === '"' && this.text[end] === "\\" ? 2 : 1;
      const whole = this.text.slice(this.at, end + 1);
      this.at = end + 1;
      return quote === '"' ? JSON.parse(whole) : whole.slice(1, -1);
    }
  }

  function scalar(text) {
    if (WORDS.has(text)) return WORDS.get(text);
    return NUMBER.test(text) ? Number(text) : text;
  }

  /** Return the value of a text; one that cannot be read is the text itself, for the server to complain about. */
  function parse(text) {
    try {
      const reader = new Reader(text.trim());
      const found = reader.value("");
      reader.space();
      return reader.at === reader.text.length ? found : text.trim();
    } catch {
      return text.trim();
    }
  }

  sv.flow = { show, parse };
})(surgeryViewer);
