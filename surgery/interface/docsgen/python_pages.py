"""The Python reference: the public names of surgery, generated from their signatures and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

import surgery
from surgery.interface.docsgen import definitions_in_source as source
from surgery.interface.docsgen import signatures_in_source as signatures
from surgery.interface.docsgen.definitions_in_source import Definition
from surgery.interface.docsgen.public_groups import CONSTRUCTED, INHERITED, INTERNAL, PAGES, GroupedPage, NameGroup
from surgery.interface.docsgen.reference import GENERATED, anchor, page_text

_REFERENCE = re.compile(r"`(surgery\.)?(\w+)(?:\.\w+)*`|(?<![\w`.])(\w+Error)(?![\w`])")
"""What may be a link in a docstring: a name in backticks, perhaps with an attribute, or an error."""


_QUOTES = "'\""


def pages() -> dict[str, str]:
    """Return the pages, by path relative to the documentation folder."""
    entries = {key: _entries(page) for key, page in PAGES.items()}
    links = {
        name: f"{key}.md#{anchor(_title(found))}" for key, known in entries.items() for name, found in known.items()
    }
    links |= {base.name: links[name] for name in INHERITED for base in source.bases(public(name))}
    return {f"reference/{key}.md": _Writer(key, entries[key], links).page(page) for key, page in PAGES.items()}


def public(name: str) -> Definition:
    """Return the definition of a public name of surgery."""
    found = source.find("surgery", name)
    assert found is not None, f"'{name}' is not defined in surgery"
    return found


def shown_members(found: Definition) -> dict[str, Definition]:
    """Return the members of a class that are for its users, by name."""
    bases = [base for base in source.bases(found) if found.name in INHERITED]
    known = dict(chain.from_iterable(source.members(base).items() for base in bases))
    hidden = INTERNAL.get(found.name, ())
    own = {name: one for name, one in source.members(found).items() if name not in hidden and _is_of_use(one)}
    return {**{name: known[name] for name in INHERITED.get(found.name, ())}, **own}


def _is_of_use(member: Definition) -> bool:
    """Return whether a member is more than a setting of the class without documentation, or a parameter shown above."""
    is_setting = member.hint is not None and "ClassVar" in ast.unparse(member.hint)
    return bool(member.doc) or not (is_setting or (member.within in CONSTRUCTED and member.hint is not None))


def _entries(page: GroupedPage) -> dict[str, Definition]:
    """Return the definitions of the names of a page, then of the classes that its functions return."""
    listed = {name: public(name) for group in page.groups for name in group.names}
    functions = [one for one in listed.values() if isinstance(one.node, ast.FunctionDef)]
    found = _classes((one, one.hint) for one in functions if one.hint is not None)
    for one in (*listed.values(), *found.values()):
        if isinstance(one.node, ast.ClassDef) and page.followed:
            attributes = shown_members(one).values()
            held = _classes((member, member.hint) for member in attributes if member.hint is not None)
            found.update({name: made for name, made in held.items() if name in page.followed})
    return {**listed, **found}


def _classes(hints: Iterable[signatures.Hint]) -> dict[str, Definition]:
    """Return the classes of surgery in annotations that are not public, by name."""
    classes = (one for one in signatures.named(hints).values() if isinstance(one.node, ast.ClassDef))
    return {one.name: one for one in classes if one.name not in surgery.__all__}


def _returned(page: GroupedPage, entries: Mapping[str, Definition]) -> NameGroup:
    """Return the last group of a page, with the classes that are not public."""
    listed = set(chain.from_iterable(group.names for group in page.groups))
    about = "They are not names of `surgery`: its functions make them."
    return NameGroup(page.returned, about, tuple(name for name in entries if name not in listed))


def _signature(found: Definition) -> str:
    """Return what stands above the text of an entry; empty for a class that the reader does not construct."""
    if isinstance(found.node, ast.FunctionDef):
        return signatures.of_function(found, f"surgery.{found.name}")
    if isinstance(found.node, ast.ClassDef):
        return signatures.of_constructor(found, f"surgery.{found.name}") if found.name in CONSTRUCTED else ""
    is_special = found.name.startswith("__")
    return "" if is_special or found.value is None else f"{found.name} = {found.written(found.value)}"


def _member(member: Definition) -> str:
    """Return a method with its parameters, or an attribute with its type."""
    if not isinstance(member.node, ast.FunctionDef) or member.marks & {"property", "cached_property"}:
        return signatures.of_attribute(member)
    is_of_class = member.marks & {"staticmethod", "classmethod"}
    name = f"{member.within}.{member.name}" if is_of_class else member.name
    return signatures.of_function(member, name, is_wide=True)


def _short(text: str, named: Mapping[str, Definition]) -> str:
    """Return a signature without the modules of surgery that it names."""
    for name, one in named.items():
        if "." in name:
            text = re.sub(rf"(?<![\w.]){re.escape(name)}\b", one.name, text)
    return text


def _title(found: Definition) -> str:
    """Return the heading of an entry; that of a class differs from that of a function with its name in lower case."""
    if isinstance(found.node, ast.ClassDef):
        return f"class {found.name}"
    return f"`{found.name}`" if found.name.startswith("_") else found.name  # underscores are markup


def _first_sentence(doc: str) -> str:
    text = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z`])", text)[0].rstrip(":.") + "."


class _Writer:
    """Writes one page. `links` leads from names to their entries."""

    def __init__(self, key: str, entries: Mapping[str, Definition], links: Mapping[str, str]) -> None:
        self._own = f"{key}.md"
        self._entries = entries
        self._links = links

    def page(self, page: GroupedPage) -> str:
        """Return the text of the page."""
        groups = [*page.groups, _returned(page, self._entries)]
        lines = [GENERATED, f"# {page.title}", "", page.about, ""]
        lines += [f"- [{one.title}](#{anchor(one.title)}): {', '.join(map(self._link, one.names))}" for one in groups]
        for group in groups:
            lines += ["", f"## {group.title}", "", group.about]
            for name in group.names:
                lines += ["", f"### {_title(self._entries[name])}", "", *self._entry(self._entries[name])]
        return re.sub(r"\n{3,}", "\n\n", page_text(lines))

    def _link(self, name: str) -> str:
        return f"[`{name}`]({self._links[name].removeprefix(self._own)})"

    def _entry(self, found: Definition) -> Iterator[str]:
        members = shown_members(found) if isinstance(found.node, ast.ClassDef) else {}
        holders = [found, *(source.members(found) if found.name in CONSTRUCTED else members).values()]
        named = signatures.named(chain.from_iterable(map(signatures.hints, holders)))
        shown = _signature(found)
        if shown:
            yield from ("```python", _short(shown, named), "```", "")
        own = {found.name, *members, *(signatures.parameters(found))}
        yield from (*self._text(found.doc, own), "")
        bases = [base.name for base in source.bases(found) if base.name in self._links]
        if bases:
            yield from (f"It also has the members of {', '.join(map(self._link, bases))}.", "")
        for member in members.values():
            yield f"- `{_short(_member(member), named)}`"
            text = self._text(member.doc, {*own, *signatures.parameters(member)})
            yield from ("", *(f"  {line}".rstrip() for line in text), "") if member.doc else ()
        yield ""
        yield from self._types(found, named)
        yield f"Source: `{found.path}`"

    def _types(self, found: Definition, named: Mapping[str, Definition]) -> Iterator[str]:
        """Yield what the names in signatures mean that are not public."""
        hidden = {one.name: one for one in named.values() if one.name not in (*surgery.__all__, found.name)}
        if set(hidden) - set(self._links):
            yield from ("In signatures:", "")
        for name, one in hidden.items():
            if isinstance(one.node, ast.ClassDef) and name not in self._links:
                yield f"- `{name}`: {self._inline(_first_sentence(one.doc))}"
            elif one.value is not None:
                about = f": {self._inline(_first_sentence(one.doc))}" if one.doc else ""
                yield f"- `{name}` is `{_short(one.written(one.value), named).strip(_QUOTES)}`{about}"
        linked = [self._link(name) for name in hidden if name in self._links]
        yield from ("", f"See also {', '.join(linked)}.") if linked else ()
        yield ""

    def _text(self, doc: str, own: Collection[str]) -> Iterator[str]:
        """Yield a docstring as Markdown: an indented paragraph is code, and names are links, except for `own` ones."""
        for paragraph in doc.split("\n\n"):
            if paragraph.startswith("    "):
                yield from ("```python", *(line.removeprefix("    ") for line in paragraph.splitlines()), "```", "")
            else:
                yield from (*self._inline(paragraph, own).splitlines(), "")

    def _inline(self, text: str, own: Collection[str] = ()) -> str:
        def linked(match: re.Match[str]) -> str:
            name = match.group(2) or match.group(3)
            if name not in self._links or (name in own and not match.group(1)):
                return match.group()
            return f"[`{match.group().strip('`')}`]({self._links[name].removeprefix(self._own)})"

        return _REFERENCE.sub(linked, text)
