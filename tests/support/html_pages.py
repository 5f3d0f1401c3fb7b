"""Read pages back: what elements there are, whether they nest, what is linked to, and what would be loaded."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}
SHAPES = {"path", "rect", "circle"}
LOADING = {"src", "srcset", "data", "poster", "background", "action", "formaction", "xlink:href"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""
    parents: tuple[Element, ...] = field(default=(), repr=False)

    def inside(self, tag: str) -> bool:
        return any(parent.tag == tag for parent in self.parents)


class Page(HTMLParser):
    """A page, read strictly: tags that do not nest are an error."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(str(html))
        self.close()
        assert not self._open, f"not closed: {[one.tag for one in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in <{tag} {names}>"
        element = Element(tag, {name: value or "" for name, value in attrs}, parents=tuple(self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, f"<{tag}/> is no element of HTML"
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1].tag == tag, f"</{tag}> in {[one.tag for one in self._open]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [one for one in self.elements if one.tag == tag]

    def by_id(self, name: str) -> Element:
        (found,) = [one for one in self.elements if one.attributes.get("id") == name]
        return found

    @property
    def text(self) -> str:
        return " ".join(" ".join(one.text for one in self.all("body")).split())


def checked(html: str) -> Page:
    """Return a page after the checks that hold for every page."""
    page = Page(html)
    _loads_nothing(page)
    _policy_holds(page)
    _is_accessible(page)
    hidden = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
    assert not hidden.search(html), "a character that a browser obeys"
    return page


def _loads_nothing(page: Page) -> None:
    for one in page.elements:
        assert not LOADING & one.attributes.keys(), one
        assert one.attributes.get("href", "#").startswith("#"), one
        assert not [name for name in one.attributes if name.startswith("on") or name == "style"], one
        assert one.tag not in ("link", "img", "iframe", "object", "embed", "form", "base"), one
    assert not re.search(r"url\(|@import", "".join(one.text for one in page.all("style")))


def _policy_holds(page: Page) -> None:
    (policy,) = [one.attributes["content"] for one in page.all("meta") if "http-equiv" in one.attributes]
    assert policy.startswith("default-src 'none'; ")
    scripts = [one.text for one in page.all("script") if not one.attributes.get("type")]
    for kind, texts in (("script", scripts), ("style", [one.text for one in page.all("style")])):
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        quoted = " ".join(f"'sha256-{one}'" for one in hashes)
        assert f"{kind}-src {quoted};" in policy
    assert "unsafe" not in policy


def _is_accessible(page: Page) -> None:
    ids = [one.attributes["id"] for one in page.elements if "id" in one.attributes]
    assert len(ids) == len(set(ids)), "an id twice"
    for one in page.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(one.attributes.get(name, "").split()) <= set(ids), one
        if one.tag == "a" and not one.attributes["href"].startswith("#state="):
            assert one.attributes["href"][1:] in ids, one
    assert len(page.all("main")) == len(page.all("h1")) == 1
    assert page.all("html")[0].attributes["lang"] == "en"
    tables, captions = page.all("table"), page.all("caption")
    assert len(tables) == len(captions) and all(one.text.strip() for one in captions)
    assert all(one.attributes.get("scope") in ("col", "row") for one in page.all("th"))
    for one in page.all("svg"):
        hidden = any(each.attributes.get("aria-hidden") == "true" for each in (one, *one.parents))
        assert hidden or one.attributes.get("role") == "img", one
