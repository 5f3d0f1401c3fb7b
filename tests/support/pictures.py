"""Pixels of screenshots, read and compared by the browser that made them."""

import base64
from pathlib import Path
from typing import Any

_READ = """async ([first, second]) => {
  const read = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes]));
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const a = await read(first);
  if (second === null) return Array.from(a.data);
  const b = await read(second);
  if (a.width !== b.width || a.height !== b.height) return 1;
  let other = 0;
  for (let at = 0; at < a.data.length; at += 4) {
    const far = Math.max(...[0, 1, 2].map((k) => Math.abs(a.data[at + k] - b.data[at + k])));
    if (far > 48) other++;
  }
  return other / (a.width * a.height);
}"""


def _text(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def dots(browser: Any, picture: bytes) -> list[tuple[int, int, int]]:
    """Return the colors of all pixels of a PNG, row by row."""
    page = browser.new_page()
    data = page.evaluate(_READ, [_text(picture), None])
    page.close()
    return list(zip(data[::4], data[1::4], data[2::4], strict=True))


def difference(browser: Any, first: bytes, second: bytes) -> float:
    """Return the share of pixels that differ clearly between two PNGs; 1.0 for other sizes."""
    page = browser.new_page()
    found = page.evaluate(_READ, [_text(first), _text(second)])
    page.close()
    return float(found)


def compare(browser: Any, picture: bytes, baseline: Path, bless: bool, tolerance: float) -> None:
    """Assert that a screenshot looks as its baseline does; write the baseline with `bless`."""
    if bless:
        baseline.parent.mkdir(exist_ok=True)
        baseline.write_bytes(picture)
        return
    share = difference(browser, picture, baseline.read_bytes())
    if share > tolerance:
        seen = Path("build") / "pictures" / baseline.name
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.write_bytes(picture)
        raise AssertionError(f"{share:.1%} of {baseline.name} looks different: see {seen}, or accept it with --bless")
