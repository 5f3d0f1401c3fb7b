"""One page: sections and a graph view, as a single HTML file that loads nothing."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from surgery.interface.pages import assets, page_text


@dataclass(frozen=True)
class PageSection:
    """A part of a page. `anchor` is its id, `title` its heading, `short` its name in the navigation.

    `body` is HTML; text from models has been escaped when the body was created.
    """

    anchor: str
    title: str
    body: Markup
    short: str = ""


def page(
    title: str,
    sections: Sequence[PageSection] = (),
    drawing: Mapping[str, Any] | None = None,
    *,
    kind: str = "",
    opens: Sequence[str] = (),
) -> str:
    """Return a page as one HTML document.

    `drawing` is a drawing document (`surgery.interface.drawing.document`), shown after the first section. `kind` is
    shown above the title, such as "Report of a run". `opens` is the command that opens the model in the workbench, word
    by word. Text from models is escaped, and control characters are made
    visible.
    """
    drawn = drawing is not None and assets.has_viewer()
    style, script = assets.style(viewer=drawn), assets.script(viewer=drawn)
    made = render(
        "page.html.jinja",
        title=title,
        kind=kind,
        sections=sections,
        drawing=Markup(compressed(drawing)) if drawn and drawing is not None else None,
        overview=drawing if drawn else None,
        opens=json.dumps([*opens]) if opens else None,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
    )
    return str(made)


def render(template: str, /, **values: Any) -> Markup:
    """Fill a template; all values except `Markup` are made visible and escaped."""
    return Markup(environment().get_template(template).render(**values))


def compressed(document: Mapping[str, Any]) -> str:
    """Return a JSON document in the format of the graph view: UTF-8, deflated without a header, in base64."""
    # A lone surrogate is invalid in UTF-8; JSON can write it as an escape.
    data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode("ascii")


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: nothing is loaded, and only the page's own script runs."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{assets.integrity(script)}'",
            f"style-src '{assets.integrity(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


@cache
def environment() -> Environment:
    """Return the template environment with the filters that the templates use."""
    made = Environment(
        loader=PackageLoader("surgery.interface.pages"),
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = (
        page_text.clip,
        page_text.integer,
        page_text.amount,
        page_text.size,
        page_text.seconds,
        page_text.scientific,
        page_text.plain_number,
        page_text.change,
        page_text.dims,
        page_text.plural,
        page_text.command,
    )
    made.filters.update({function.__name__: function for function in shown})
    return made


def _shown(value: Any) -> Any:
    """Prepare a value for a page: text is made visible, None becomes empty."""
    if value is None:
        return ""
    return page_text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
