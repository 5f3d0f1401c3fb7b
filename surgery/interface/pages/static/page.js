(function () {
  "use strict";
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");

  function theme() {
    return root.dataset.theme || (dark.matches ? "dark" : "light");
  }

  function announce() {
    window.dispatchEvent(new CustomEvent("surgery:theme", { detail: theme() }));
  }

  function prepareTheme() {
    var button = document.getElementById("theme");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", function () {
      root.dataset.theme = theme() === "dark" ? "light" : "dark";
      announce();
    });
    dark.addEventListener("change", announce);
  }

  // What is linked to may be inside of something folded.
  function reveal() {
    var name;
    try { name = decodeURIComponent(location.hash.slice(1)); } catch (_) { return; }
    var target = name && document.getElementById(name);
    if (!target) return;
    var opened = false;
    for (var at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS" && !at.open) { at.open = true; opened = true; }
    }
    if (opened) target.scrollIntoView();
  }

  async function inflate(element) {
    var packed = Uint8Array.from(atob(element.textContent.trim()), function (c) { return c.charCodeAt(0); });
    var stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return JSON.parse(await new Response(stream).text());
  }

  async function drawGraph() {
    var data = document.getElementById("drawing");
    var view = document.getElementById("graph-view");
    if (!data || !view || typeof surgeryViewer === "undefined") return;
    var note = document.getElementById("graph-note");
    try {
      if (surgeryViewer.boot) {
        if (note) note.remove();
        await surgeryViewer.boot(view, data, { theme: theme() });
      } else {
        var drawing = await inflate(data);
        if (note) note.remove();
        await surgeryViewer.mount(view, drawing, { theme: theme() });
      }
    } catch (error) {
      var line = document.createElement("p");
      line.className = "note";
      line.textContent = "The graph cannot be drawn: " + error;
      view.replaceChildren(line);
      throw error;
    }
  }

  prepareTheme();
  window.addEventListener("hashchange", reveal);
  reveal();
  drawGraph();
})();
