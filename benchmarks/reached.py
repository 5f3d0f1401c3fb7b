"""Count the changed nodes that a click in the list of changes reaches, in reports and difference pages.

    python benchmarks/reached.py [MODEL...] [--recipe default] [--pages FILE.html...] [--format json]

Each model is optimized by `surgery apply RECIPE MODEL --report`, and compared with the result by `surgery diff --html`.
Both pages are opened in Chromium. A changed node is one that the drawing marks as removed, added or altered in any
state; it is reached if a click below a change in the list selects it, draws it on the screen, and the change has a text
that says what happened and a pass or a reason. `unsaid` counts nodes below changes without them. `--pages` counts in
ready pages. The models are those of the zoo by default.

Exit code 1 if fewer than 95 % of the changed nodes of a page are reached.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from suite import zoo

_LEAST = 0.95
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_DRAWING = re.compile(r'<script type="application/x-surgery-drawing" id="drawing">([^<]*)</script>')
# The page keeps its view to itself.
_KEEP_VIEW = """
let viewer;
Object.defineProperty(window, "surgeryViewer", {
  get: () => viewer,
  set(value) {
    viewer = value;
    let mount;
    Object.defineProperty(viewer, "mount", {
      get: () => mount,
      set(made) { mount = (...given) => (window.view = made(...given)); },
    });
  },
});
"""
# Opens all folds and lists of changes, and clicks what has no other button for its node.
_CLICK = """
async () => {
  const side = document.querySelector(".sv-changes");
  const tick = () => new Promise((done) => setTimeout(done));
  for (let round = 0; round < 1000; round++) {
    const closed = [...side.querySelectorAll("details:not([open])")];
    const more = [...side.querySelectorAll(".sv-more > button")];
    if (!closed.length && !more.length) break;
    for (const each of closed) each.open = true;
    for (const each of more) each.click();
    await tick();
  }
  const reached = [], unsaid = [];
  // A change without a pass or a reason stands below the name of the file.
  const bare = new Set(view.model.states.filter((state) => !state.pass).map((state) => state.label));
  for (const button of side.querySelectorAll(".sv-node-link, .sv-site")) {
    button.click();
    const node = view.selected;
    const [left, top, right, bottom] = view.scene.rectangle(node);
    const seen = view.camera.view();
    if (!view.scene.shown[node] || right < seen[0] || left > seen[2] || bottom < seen[1] || top > seen[3]) continue;
    const by = button.closest(".sv-pass").querySelector(".sv-pass-head > span").textContent.trim();
    const kind = button.closest(".sv-kind")?.querySelector("summary") ?? button.closest(".sv-kinds > li");
    (by && !bare.has(by) && kind.textContent.trim() ? reached : unsaid).push(node);
  }
  return [reached, unsaid];
}
"""


@dataclass(frozen=True)
class Counted:
    """The figures of one page."""

    page: str
    changed: int
    reached: int
    unsaid: int

    @property
    def share(self) -> float:
        """The share of the changed nodes that are reached."""
        return self.reached / self.changed if self.changed else 1.0

    def __str__(self) -> str:
        """Format one row of the table."""
        return f"{self.page:32}{self.changed:>8,}{self.reached:>9,}{100 * self.share:>8.1f} %{self.unsaid:>8,}"


def changed_nodes(page: Path) -> set[int]:
    """Return the rows of a drawing that change in any of its states."""
    found = _DRAWING.search(page.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{page} has no graph")
    drawing: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(found[1]), -zlib.MAX_WBITS))
    nodes = drawing["nodes"]
    moved = {row for row in range(len(nodes["op"])) if nodes["born"][row] > 0 or nodes["died"][row] >= 0}
    return moved | set(drawing["altered"]["node"])


def counted(browser: Browser, page: Path) -> Counted:
    """Open a page and click on each entry of its list of changes."""
    changed = changed_nodes(page)
    context = browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
    try:
        context.add_init_script(_KEEP_VIEW)
        window = context.new_page()
        window.set_default_timeout(600_000)
        window.goto(page.as_uri())
        window.wait_for_selector(".sv-changes")
        reached, unsaid = (set(rows) & changed for rows in window.evaluate(_CLICK))
    finally:
        context.close()
    return Counted(page.stem, len(changed), len(reached), len(unsaid - reached))


def pages(models: Sequence[str], recipe: str, folder: Path) -> Iterator[Path]:
    """Write the report and the difference page of each model."""
    for name in models:
        model = zoo.find(name)
        result, report, difference = (
            folder / f"{model.name}{suffix}" for suffix in (".onnx", " report.html", " diff.html")
        )
        command = [sys.executable, "-m", "surgery"]
        apply = [*command, "apply", recipe, str(model.path), "-o", str(result), "--report", str(report)]
        subprocess.run(apply, check=True, capture_output=True)
        yield report
        compare = [*command, "diff", str(model.path), str(result), "--html", str(difference)]
        subprocess.run(compare, check=True, capture_output=True)
        result.unlink()
        yield difference


def main() -> int:
    """Count in all pages; return 1 if too few nodes are reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(zoo.NAMES), metavar="MODEL")
    parser.add_argument("--recipe", default="default", help="a shipped recipe or a file (default: default)")
    parser.add_argument("--pages", nargs="+", type=Path, metavar="FILE", help="count in these pages, not in models")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="the program (default: chromium)")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.browser, args=_FLAGS)
        if arguments.format == "text":
            print(f"{'page':32}{'changed':>8}{'reached':>9}{'share':>10}{'unsaid':>8}")
        for page in arguments.pages or pages(arguments.models, arguments.recipe, Path(folder)):
            found.append(counted(browser, page.resolve()))
            if arguments.format == "text":
                print(found[-1], flush=True)
        browser.close()
    if arguments.format == "json":
        print(json.dumps([{**asdict(one), "share": one.share} for one in found], indent=1))
    return int(any(one.share < _LEAST for one in found))


if __name__ == "__main__":
    sys.exit(main())
