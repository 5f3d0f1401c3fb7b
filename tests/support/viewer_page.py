"""Pages with nothing but the viewer and a drawing, under the policy that real pages have."""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import surgery

FOLDER = Path(surgery.__file__).parent / "interface" / "pages" / "static" / "viewer"
_BOOT = """
window.marks = {start: performance.now()};
surgeryViewer.boot(document.getElementById("graph-view"), document.getElementById("drawing"), {}).then(
  (view) => { window.view = view; marks.painted = performance.now(); document.body.dataset.drawn = "yes"; });
"""
_FRAME = "body { margin: 0 } #graph-view { position: relative; height: 100vh } :root { color-scheme: light dark }"


def packed(document: Mapping[str, Any]) -> str:
    """Return a drawing document as it is in pages: base64 of raw deflate of JSON."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    text = json.dumps(document, separators=(",", ":")).encode()
    return base64.b64encode(packer.compress(text) + packer.flush()).decode()


def files(suffix: str) -> str:
    """Return all files of the viewer with a suffix, in their order."""
    names = (FOLDER / "order.txt").read_text().split()
    return "\n".join((FOLDER / name).read_text() for name in names if name.endswith(suffix))


def viewer_page(document: Mapping[str, Any], title: str = "drawing") -> str:
    """Return an HTML page that shows a drawing document in the whole window."""
    script = files(".js") + _BOOT
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = files(".css") + _FRAME
    style_digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'sha256-{style_digest}'"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<style>{style}</style></head><body><main><div id="graph-view"></div></main>'
        f'<script type="application/x-surgery-drawing" id="drawing">{packed(document)}</script>'
        f"<script>{script}</script></body></html>"
    )
