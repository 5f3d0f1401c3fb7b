"""The page of the workbench: the graph view of reports, with what can be done to the model next to it."""

from __future__ import annotations

from markupsafe import Markup

from surgery.interface.pages import assets
from surgery.interface.pages.page import render


def page_of_workbench(title: str, *, has_tour: bool = False) -> tuple[str, str]:
    """Return the page, and its content security policy: it talks to its server, and loads nothing else.

    The server adds who may frame it. With `has_tour`, the page begins with a guided tour.
    """
    style, script = assets.workbench_style(), assets.workbench_script()
    html = render("workbench.html.jinja", title=title, style=Markup(style), script=Markup(script), has_tour=has_tour)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{assets.integrity(script)}'",
            f"style-src '{assets.integrity(style)}'",
            "connect-src 'self'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return str(html), policy
