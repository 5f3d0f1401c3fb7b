// The graph on paper: a picture of all that is open, in the colors of a light page.
(function (sv) {
  "use strict";

  // More boxes than these cannot be read on a sheet: what is visible on the screen is printed instead.
  const MOST_BOXES = 3000;

  /** Return the picture of a graph as an SVG element, in the colors that `paper`, an element of the page, has. */
  sv.picture = function (view, paper) {
    const { scene, model } = view;
    const printed = Object.create(view, { palette: { value: sv.palette(paper) } });
    const whole = { rectangle: [0, 0, scene.width, scene.height], only: null, title: sv.cut(model.title, 60) };
    const [left, top, right, bottom] = view.camera.view();
    const seen = [
      Math.max(left, 0),
      Math.max(top, 0),
      Math.min(right, scene.width),
      Math.min(bottom, scene.height),
    ];
    const region = scene.leaves.length > MOST_BOXES ? { ...whole, rectangle: seen } : whole;
    const parsed = new DOMParser().parseFromString(sv.svg(printed, region), "image/svg+xml").documentElement;
    const picture = document.importNode(parsed, true);
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", "Graph of " + whole.title);
    return picture;
  };
})(surgeryViewer);
