"""Measure how soon a graph is on the screen and how smoothly it moves, compared with Netron.

    python benchmarks/viewing.py [--nodes 1000 10000 50000 100000] [--shapes flat scopes] [--netron COMMAND]
                                 [--timeout 120] [--format json]

Both draw the same file in the same headless Chromium, without a GPU. `paint` is the time from the start of the
navigation until the whole graph is drawn for the first time. Netron reads and lays out the model in that time; surgery
does so once for all readers in `surgery view`, whose time is `write`. `frames` is the number of frames per second while
the mouse drags and the wheel zooms. `empty` is the time until an empty page is drawn: on a busy machine, most of
`paint` is the browser's own. `bytes` is the size of the page. Netron is called as `netron --host --port FILE`,
and skipped if the command is not found. The `scopes` model names its nodes so that surgery groups them; `flat` has no
scopes, and all its groups are opened for `frames`.

Exit code 1 if surgery's first paint takes longer than 0.3 s for 1,000 nodes, 3 s for 50,000 or 6 s for 100,000, if it
draws fewer than 30 frames per second, or if its page for 10,000 nodes is larger than 2 MB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import Error as BrowserError

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_PAINT = {1_000: 0.3, 50_000: 3.0, 100_000: 6.0}
_FRAMES = 30.0
_BYTES = {10_000: 2_000_000}
_EMPTY = '<!doctype html><html lang="en"><title>empty</title><canvas></canvas></html>'
# Netron replaces `eval`, which the driver needs.
_KEEP_EVAL = (
    "const kept = window.eval; Object.defineProperty(window, 'eval', {get() { return kept; }, set() {}});"
    "window.frameTimes = []; window.painted = null;"
    "(function next(now) { frameTimes.push(now); requestAnimationFrame(next); if (frameTimes.length > 4000)"
    " frameTimes.splice(0, 2000); })(0);"
)


@dataclass
class Seen:
    """The measurements of one viewer on one model."""

    viewer: str
    shape: str
    nodes: int
    empty: float | None = None
    paint: float | None = None
    frames: float | None = None
    write: float | None = None
    bytes: int | None = None
    failure: str = ""


def model(shape: str, nodes: int, path: Path) -> None:
    """Write a model of blocks with skip connections; for the shape `scopes`, node names contain layer scopes."""
    made = []
    value = "x"
    for at in range(nodes // 8):
        names = [f"v{at}_{k}" for k in range(8)]
        scope = f"/model/stage.{at // 24}/layer.{at % 24}/" if shape == "scopes" else ""
        steps = [
            ("MatMul", [value, "w"]),
            ("Add", [names[0], "b"]),
            ("Relu", [names[1]]),
            ("MatMul", [names[2], "w"]),
            ("Sigmoid", [names[0]]),
            ("Mul", [names[3], names[4]]),
            ("Add", [names[5], value]),
            ("Tanh", [names[6]]),
        ]
        for (op, inputs), name in zip(steps, names, strict=True):
            made.append(helper.make_node(op, inputs, [name], name=f"{scope}{op}_{name}" if scope else name))
        value = names[-1]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", value)]
    weights = [numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"), numpy_helper.from_array(np.ones(8, "f"), "b")]
    graph = helper.make_graph(made, f"{shape}-{nodes}", ends[:1], ends[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def painted(page: Page, address: str, selector: str, timeout: float) -> float:
    """Return the shortest of three times, or the first one if it is ten seconds or more."""
    best = paint_once(page, address, selector, timeout)
    for _ in range(2 if best < 10 else 0):
        best = min(best, paint_once(page, address, selector, timeout))
    return best


def paint_once(page: Page, address: str, selector: str, timeout: float) -> float:
    """Open a page, and return the seconds until the first frame after its graph is drawn."""
    page.goto("about:blank")
    page.goto(address, wait_until="commit", timeout=1000 * timeout)
    page.wait_for_selector(selector, state="attached", timeout=1000 * timeout)
    script = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now() / 1000))))"
    return float(page.evaluate(script))


def frames(page: Page, seconds: float = 2.0) -> float:
    """Drag and zoom; return the frames per second."""
    page.mouse.move(700, 450)
    page.evaluate("frameTimes.length = 0")
    start = time.monotonic()
    step = 0
    while time.monotonic() - start < seconds:
        step += 1
        if step % 20 == 0:
            page.mouse.up()
            page.mouse.wheel(0, -120 if step % 40 else 120)
            page.mouse.move(700, 450)
            page.mouse.down()
        page.mouse.move(700 + 12 * (step % 20), 450 + 9 * (step % 20))
    page.mouse.up()
    times = page.evaluate("new Promise((done) => requestAnimationFrame(() => done(frameTimes)))")
    return (len(times) - 1) / ((times[-1] - times[0]) / 1000) if len(times) > 1 else 0.0


@contextmanager
def opened(browser: Browser) -> Iterator[Page]:
    """Open a window that connects only to this machine."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.route(lambda url: not url.startswith(("file:", "http://127.0.0.1")), lambda route: route.abort())
    context.add_cookies([{"name": "consent", "value": "1", "domain": "127.0.0.1", "path": "/"}])
    context.add_init_script(_KEEP_EVAL)
    try:
        yield context.new_page()
    finally:
        context.close()


def surgery(browser: Browser, seen: Seen, path: Path, timeout: float) -> None:
    """Measure the page of `surgery view`."""
    target = path.with_suffix(".html")
    start = time.monotonic()
    command = [sys.executable, "-m", "surgery", "view", str(path), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True, timeout=timeout)
    seen.write = time.monotonic() - start
    seen.bytes = target.stat().st_size
    blank = path.with_name("empty.html")
    blank.write_text(_EMPTY, encoding="utf-8")
    with opened(browser) as page:
        seen.empty = painted(page, blank.as_uri(), "canvas", timeout)
        seen.paint = painted(page, target.as_uri(), ".sv-canvas", timeout)
        if seen.shape == "flat":
            page.get_by_role("button", name="Open all groups").click()
            page.get_by_role("button", name="Fit (0)").click()
            page.wait_for_timeout(1000)
        seen.frames = frames(page)


def netron(browser: Browser, seen: Seen, path: Path, timeout: float, program: str) -> None:
    """Measure Netron, served on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "--host", "127.0.0.1", "--port", str(port), str(path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        with opened(browser) as page:
            seen.paint = painted(page, f"http://127.0.0.1:{port}/", "body.default .node", timeout)
            seen.frames = frames(page)
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("Netron does not answer")


def measured(arguments: argparse.Namespace, browser: Browser, folder: Path) -> Iterator[Seen]:
    """Measure all models with both viewers; once Netron fails on a shape, it is skipped for more nodes."""
    gave_up = set()
    for nodes in arguments.nodes:
        for shape in arguments.shapes:
            path = folder / f"{shape}-{nodes}.onnx"
            model(shape, nodes, path)
            seen = Seen("surgery", shape, nodes)
            surgery(browser, seen, path, arguments.timeout)
            yield seen
            if not arguments.netron or shape in gave_up:
                continue
            peer = Seen("netron", shape, nodes)
            try:
                netron(browser, peer, path, arguments.timeout, arguments.netron)
            except (BrowserError, TimeoutError) as error:
                peer.failure = str(error).splitlines()[0]
                gave_up.add(shape)
            yield peer


def is_missed(seen: Seen) -> bool:
    """Return whether surgery misses a goal."""
    if seen.viewer != "surgery":
        return False
    slow = seen.paint is None or seen.paint > _PAINT.get(seen.nodes, float("inf"))
    large = (seen.bytes or 0) > _BYTES.get(seen.nodes, float("inf"))
    return slow or large or seen.frames is None or seen.frames < _FRAMES


def line(seen: Seen) -> str:
    """Return one row of the table."""
    cells = [
        f"{seen.viewer:8}{seen.shape:8}{seen.nodes:>8,}",
        f"{seen.empty:6.2f} s" if seen.empty is not None else " " * 8,
        f"{seen.paint:8.2f} s" if seen.paint is not None else " " * 10,
        f"{seen.frames:6.1f} fps" if seen.frames is not None else " " * 10,
        f"{seen.write:7.1f} s" if seen.write is not None else " " * 9,
        f"{seen.bytes:>11,}" if seen.bytes is not None else " " * 11,
        seen.failure,
    ]
    return " ".join(cells).rstrip()


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000, 50_000, 100_000])
    parser.add_argument("--shapes", nargs="+", choices=["flat", "scopes"], default=["scopes", "flat"])
    parser.add_argument(
        "--netron", default=shutil.which("netron"), help="the command (default: netron, if it is found)"
    )
    parser.add_argument("--browser", default=shutil.which("chromium"), help="the program (default: chromium)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a first paint may take (default: 120)")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.browser, args=_FLAGS)
        if arguments.format == "text":
            print("viewer  shape      nodes    empty      paint     frames     write       bytes")
        for seen in measured(arguments, browser, Path(folder)):
            found.append(seen)
            if arguments.format == "text":
                print(line(seen), flush=True)
        browser.close()
    if arguments.format == "json":
        print(json.dumps([asdict(seen) for seen in found], indent=1))
    return int(any(map(is_missed, found)))


if __name__ == "__main__":
    sys.exit(main())
