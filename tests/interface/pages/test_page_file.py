"""A page is one file that loads nothing, and shows text of models as text."""

from __future__ import annotations

import base64
import json
import re
import tomllib
import zlib

import pytest
from markupsafe import Markup
from support import ROOT
from support.html_pages import checked

from surgery.interface.pages import PageSection, assets, page, visible
from surgery.interface.pages.page import compressed

EVIL = (
    "</title></style></script><script>alert(1)</script>\"'&amp;<img src=x onerror=alert(1)>\u202e\x1b[31m\ud800\u200b"
)


def test_a_page_is_complete() -> None:
    found = checked(
        page("a model", [PageSection("one", "One", Markup("<p>1</p>")), PageSection("two", "Two", Markup("2"))])
    )
    assert found.all("h1")[0].text == "a model"
    assert [one.text for one in found.all("h2")] == ["One", "Two"]
    assert any(one.attributes.get("class") == "skip" for one in found.all("a"))


def test_titles_are_escaped() -> None:
    found = checked(page(EVIL, [PageSection("one", EVIL, Markup("text"))], kind=EVIL))
    assert len(found.all("script")) == 1 and not found.all("img")
    assert "\\u202e" in found.all("h1")[0].text and "\\x1b[31m" in found.all("h1")[0].text
    assert "\\ud800" in found.all("h2")[0].text


def test_three_sections_have_a_table_of_contents() -> None:
    sections = [PageSection(name, name.title(), Markup("-"), short=name) for name in ("a", "b", "c")]
    links = [one for one in checked(page("x", sections)).all("a") if one.inside("nav")]
    assert [one.attributes["href"] for one in links] == ["#a", "#b", "#c"]


def test_the_drawing_is_in_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "has_viewer", lambda: True)
    drawing = {"strings": ["</script><script>alert(1)</script>", "\u202e", "\ud800"], "states": []}
    found = checked(page("x", [PageSection("one", "One", Markup("-"))], drawing))
    text = found.by_id("drawing").text
    assert re.fullmatch(r"[A-Za-z0-9+/]+=*", text)
    assert json.loads(zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS)) == drawing
    assert found.by_id("graph-view")


def test_a_page_without_a_drawing_has_no_graph() -> None:
    found = checked(page("x", [PageSection("one", "One", Markup("-"))]))
    assert not [one for one in found.elements if one.attributes.get("id") in ("graph", "drawing")]


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        compressed({"needed": float("nan")})


def test_a_script_cannot_end_its_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "_static", lambda name: "var a = '</script><!--';" if name.endswith("js") else "a{}")
    assets.script.cache_clear()
    try:
        text = assets.script(viewer=False)
    finally:
        assets.script.cache_clear()
    assert "</script" not in text and "<!--" not in text and "<\\/script" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e9 \u4e2d \U0001f600", "plain \u00e9 \u4e2d \U0001f600"),
        ("\u202eevil\u2069", "\\u202eevil\\u2069"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\tb\nc", "a\tb\nc"),
        ("\ud800", "\\ud800"),
        ("\U000e0041\ufeff\u00ad", "\\U000e0041\\ufeff\\xad"),
    ],
)
def test_control_characters_are_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


LUMINANCE = (0.2126, 0.7152, 0.0722)


def luminance(color: str) -> float:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(share * channel for share, channel in zip(LUMINANCE, linear))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_contrast_in_light_and_dark() -> None:
    blocks = re.findall(r"\{\s*color-scheme: (?:light|dark);(.*?)\}", assets.style(viewer=False), flags=re.DOTALL)
    assert len(blocks) == 4  # light, dark by the system, dark by choice, print
    assert blocks[1].split() == blocks[2].split()
    for block in blocks:
        colors = dict(
            re.findall(
                r"--([\w-]+): (#[0-9a-f]{6});", re.sub(r"#([0-9a-f])([0-9a-f])([0-9a-f]);", r"#\1\1\2\2\3\3;", block)
            )
        )
        for text in ("text", "muted", "accent", "ok", "warn", "bad", "info", "added", "removed", "changed", "moved"):
            for ground in ("bg", "surface", "surface-2"):
                assert contrast(colors[text], colors[ground]) >= 4.5, (text, ground, colors["bg"])
        for tone in ("ok", "warn", "bad", "info"):
            for text in ("text", tone):
                assert contrast(colors[text], colors[f"{tone}-tint"]) >= 4.5, (tone, colors["bg"])
        for shape in ("before", "after"):
            assert contrast(colors[shape], colors["bg"]) >= 3.0, (shape, colors["bg"])


def test_the_wheel_contains_all_page_resources() -> None:
    home = ROOT / "surgery/interface/pages"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packed = {path for pattern in settings["package-data"]["surgery.interface.pages"] for path in home.glob(pattern)}
    needed = {path for path in home.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert needed and needed <= packed
