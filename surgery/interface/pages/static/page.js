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

  // In the frame of a notebook, a link to a part of the page would lead to the notebook: its address is the base of links.
  function keepLinksInFrame() {
    if (location.protocol !== "about:") return;
    document.addEventListener("click", function (event) {
      var link = event.target.closest("a[href^='#']");
      if (!link) return;
      event.preventDefault();
      location.hash = link.getAttribute("href");
    });
  }

  // The picture is drawn when it is printed: until then, groups are opened and closed.
  function drawOnPaper(view) {
    var paper = document.getElementById("graph-paper");
    if (paper) paper.replaceChildren(surgeryViewer.picture(view, paper));
  }

  // A table that is not wider than its room needs no scrolling of its own, so its head can stay at the top of the window.
  function keepHeads() {
    var boxes = document.querySelectorAll(".wide");
    var nav = document.querySelector(".contents");
    var watch = new ResizeObserver(function () {
      root.style.setProperty("--head-top", (nav ? nav.offsetHeight : 0) + "px");
      boxes.forEach(function (box) {
        var fits = box.scrollWidth <= box.clientWidth;
        box.classList.toggle("fits", fits);
        if (fits) box.removeAttribute("tabindex");
        else box.tabIndex = 0;
      });
    });
    boxes.forEach(function (box) { watch.observe(box); });
  }

  async function drawGraph() {
    var data = document.getElementById("drawing");
    var view = document.getElementById("graph-view");
    if (!data || !view || typeof surgeryViewer === "undefined") return;
    var note = document.getElementById("graph-note");
    try {
      if (note) note.remove();
      var opens = view.dataset.opens ? JSON.parse(view.dataset.opens) : null;
      var shown = await surgeryViewer.boot(view, data, { theme: theme(), opens: opens });
      window.addEventListener("beforeprint", function () { drawOnPaper(shown); });
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
  keepLinksInFrame();
  keepHeads();
  drawGraph();
})();
