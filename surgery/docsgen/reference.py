"""The reference of passes and of recipe keys, made from the things themselves: `python -m surgery.docsgen docs`.

Passes of installed packages are in it like surgery's own, on a page of their own.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from surgery import testing
from surgery.recipe import jsonschema
from surgery.registry import declare
from surgery.registry.declare import Option, Pass

_MADE = "<!-- Made by `python -m surgery.docsgen docs`; what it says stands in the code. -->"
_PLUGINS = "plugins"

# The sections of the recipe reference: the name of the definition, the title, what is said before the table.
_SECTIONS = (
    (
        "pass-long",
        "A step: `pass`",
        "One pass. `- NAME` and `- NAME: {option: value}` are the short forms.",
    ),
    ("use", "A step: `use`", "Another recipe. Of it, the keys of the next section count."),
    ("nested", "A recipe in the place of its name", "Stands after `use`, and names a group of steps."),
    ("repeat", "A step: `repeat`", "Steps that run several times."),
    ("rule", "A rule", "Stands under `rules`, after its name, which is then the name of a pass in this recipe."),
    ("inputs", "`inputs`", "What is fed to both models. What is not said is found from the graph."),
    ("tensor", "`inputs: tensors`", "One of these for each input."),
    ("verify", "`verify`", "How both models are compared."),
    ("when", "`when`", "Conditions on the model before a step."),
    ("expect", "`expect` of a recipe", "What is checked at the end."),
    ("expect-step", "`expect` of a step", "What is checked before the step is committed."),
)


def pages(passes: Iterable[Pass]) -> dict[str, str]:
    """Write all pages, by their paths in the folder of the documentation."""
    known = sorted(passes, key=lambda one: (_page(one) == _PLUGINS, _page(one), one.name))
    groups = {page: list(group) for page, group in itertools.groupby(known, key=_page)}
    written = {f"passes/{page}.md": _theme(page, group) for page, group in groups.items()}
    return {**written, "passes/README.md": _index(groups), "recipe-reference.md": _recipes(jsonschema.schema(known))}


def _page(declared: Pass) -> str:
    return declared.theme if declared.is_standard else _PLUGINS


def _index(groups: Mapping[str, list[Pass]]) -> str:
    lines = [_MADE, "# Passes", "", "`surgery passes NAME` shows the same for one of them.", ""]
    for page, group in groups.items():
        lines += [f"## {page}", "", "| pass | promises | what it does |", "|---|---|---|"]
        for one in group:
            lines.append(f"| [`{one.name}`]({page}.md#{one.name}) | {one.parity.value} | {_cell(one.summary)} |")
        lines.append("")
    return _text(lines)


def _theme(page: str, group: list[Pass]) -> str:
    return _text([_MADE, f"# Passes: {page}", "", *(line for declared in group for line in _entry(declared))])


def _entry(declared: Pass) -> Iterator[str]:
    """Write what there is to know of a pass."""
    # Versions of other tools differ from one machine to the next.
    origin = f"needs {declared.requires}" if declared.requires else f"from {declared.origin}"
    remarks = [f"Promises: {declared.parity.value}", *([] if origin == "from surgery" else [origin])]
    changes = [f"changes of the signature: {', '.join(sorted(declared.changes))}"] if declared.changes else []
    yield from (f"## {declared.name}", "", f"{'; '.join(remarks + changes)}.", "", declared.doc, "")
    if declared.options:
        yield from ("| option | takes | default | |", "|---|---|---|---|")
        yield from (_row(option) for option in declared.options)
        yield ""
    # What another tool makes of an example differs from one version to the next.
    example = testing.example(declared) if not declared.requires else None
    if example is not None:
        yield from ("```", example.before, "```", "", "becomes", "", "```", example.after, "```", "")
    reasons = testing.reason_texts(declared)
    if reasons:
        yield from ("It will not fire when", "")
        yield from (f"- {reason}" for reason in reasons)
        yield ""


def _row(option: Option) -> str:
    default = "required" if option.required else f"`{option.plain_default}`"
    return f"| `{option.name}` | {_cell(option.type_name)} | {default} | {_cell(option.about)} |"


def _recipes(schema: Mapping[str, Any]) -> str:
    """Write the reference of recipe keys from the JSON schema."""
    lines = [
        _MADE,
        "# Recipes: all keys",
        "",
        "A recipe is a YAML 1.2 file; every mistake in it is reported with line and column, all at once. A list of one",
        "may be written without brackets. `surgery schema -o recipe.schema.json` writes this page for editors.",
        "",
        "## A recipe",
        "",
        *_keys(schema),
    ]
    for name, title, about in _SECTIONS:
        lines += [f'<a id="{name}"></a>', f"## {title}", "", about, "", *_keys(schema["$defs"][name])]
    return _text(lines)


def _keys(mapping: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| key | takes | |", "|---|---|---|")
    for name, body in mapping["properties"].items():
        needed = " Required." if name in mapping.get("required", ()) else ""
        default = f" Default: `{_yaml(body['default'])}`." if "default" in body else ""
        takes = _takes(body) or "a list of steps"
        yield f"| `{name}` | {_cell(takes)} | {_cell(body['description'])}{needed}{default} |"
    yield ""


def _takes(body: Mapping[str, Any]) -> str:
    """Say in words what a schema accepts."""
    if "anyOf" in body:
        first, *others = body["anyOf"]
        if [one.get("items") for one in others] == [first]:
            return f"{_takes(first)}; or a list of such"
        return " or ".join(dict.fromkeys(map(_takes, body["anyOf"])))
    if "$ref" in body:
        return _reference(body["$ref"].rpartition("/")[2])
    if "enum" in body:
        return " | ".join(f"`{choice}`" for choice in body["enum"])
    if "const" in body:
        return f"`{body['const']}`"
    kind = body.get("type")
    if kind == "array":
        return f"a list of {_takes(body['items'])}"
    if kind == "object":
        inner = body.get("additionalProperties")
        return f"a mapping of names to {_takes(inner)}" if inner else "a mapping"
    kinds = [kind] if isinstance(kind, str) else kind or []
    return " or ".join(_KINDS[one] for one in kinds)


_KINDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "`true` or `false`"}


def _reference(name: str) -> str:
    known = {"count": 'a count, or a comparison such as `">= 1"`', "steps": "a list of steps"}
    known["pass-name"] = "[a pass](passes/README.md)"
    title = next((title for section, title, _ in _SECTIONS if section == name), name)
    return known.get(name, f"[{title}](#{name})")


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> None:
    """Write the reference into a folder."""
    parser = argparse.ArgumentParser(prog="python -m surgery.docsgen", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    folder = parser.parse_args().folder
    written = pages(declare.passes().values())
    for name, text in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sys.stderr.write(f"wrote {len(written)} pages into {folder}\n")
