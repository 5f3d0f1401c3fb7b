"""The catalog of passes and predicates: standard ones, and those of installed packages and plugins."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.base.promises import CHANGES
from surgery.engine.registry import discovery
from surgery.engine.registry.api import api_of
from surgery.engine.registry.passes import Pass, require_name, suggestion
from surgery.engine.registry.predicates import Predicate

if TYPE_CHECKING:
    from surgery.engine.registry.everyday_words import Shorthand


class Catalog:
    """Passes by name, imported on first use.

    While only standard passes are registered, a pass is found by the name of its file, without importing the others.
    """

    def __init__(self) -> None:
        self._passes: dict[str, Pass] = {}
        self._predicates: dict[str, Predicate] = {}
        self._clashes: dict[str, str] = {}
        self._broken: list[discovery.Broken] = []
        self._is_complete = False
        self._is_discovering = False
        self._is_standard = False  # only standard passes are known, and none is installed
        self._loading = threading.RLock()
        """Held while passes are imported: another thread waits for them."""

    def register(self, new: Pass) -> None:
        """Register a pass by its name. Raises UsageError if its declaration is invalid or the name is taken."""
        require_name(new.name)
        unknown = sorted(change for change in new.changes if change not in CHANGES)
        if unknown:
            what = f"pass '{new.name}' declares an unknown change '{unknown[0]}'{suggestion(unknown[0], CHANGES)}"
            raise UsageError(what, todo=f"choose from {', '.join(CHANGES)}")
        if new.kind == "graph":
            api_of(new.name, new.function)
        if self._is_standard and not new.is_standard:
            self._discover()  # it may have the same name as a pass that was not imported yet
        old = self._passes.get(new.name)
        if old is None or old.place == new.place:
            self._passes[new.name] = new
            return
        clash = f"two passes are called '{new.name}': {_whereabouts(old)} and {_whereabouts(new)}"
        if not self._is_discovering:
            raise UsageError(clash, todo="rename one")
        # This pass was not requested yet, and all others can be used.
        self._clashes[new.name] = clash

    def passes(self) -> Mapping[str, Pass]:
        """Return all known passes by name; those of surgery and of installed packages are discovered on first use."""
        self._discover()
        return dict(sorted(self._passes.items()))

    def find(self, name: str) -> Pass:
        """Return the pass of that name; raise UsageError, with a suggestion or the reason, if it is unavailable."""
        found = self.get(name)
        if found is None:
            from surgery.engine.registry.everyday_words import absent, passes_for  # tables that only this error needs

            if instead := absent(name):
                raise UsageError(f"no pass '{name}': {instead}")
            meant = [f"'{one}'" for one in passes_for(name)]
            near = f"; did you mean {' or '.join(meant)}?" if meant else suggestion(name, self.passes())
            todo = None if near else "see 'surgery passes'"
            raise UsageError(f"no pass '{name}'{near}{self.missing()}", todo=todo)
        if name in self._clashes:
            raise UsageError(self._clashes[name], todo="uninstall or rename one")
        return found

    def meant(self, word: str) -> Shorthand:
        """Return the pass of that name, or the one that a task such as `uint8-input` means, with its options."""
        from surgery.engine.registry.everyday_words import Shorthand, shorthand

        return Shorthand(word) if self.get(word) is not None else shorthand(word)

    def get(self, name: str) -> Pass | None:
        """Return the pass of that name, or None; if there are only standard passes, others are not imported."""
        if not self._is_complete:
            with self._loading:
                self._import(name)
        return self._passes.get(name)

    def _import(self, name: str) -> None:
        if self._is_discovering:
            return
        if self._has_only_standard() and name not in self._passes:
            discovery.import_standard_pass(name)
        if not self._is_standard or name not in self._passes:
            self._discover()

    def register_predicate(self, new: Predicate) -> None:
        """Register a predicate by its name. Raises UsageError if the name is invalid or taken."""
        require_name(new.name, "predicate")
        old = self._predicates.setdefault(new.name, new)
        if old.place != new.place:
            what = f"two predicates are called '{new.name}': {old.place} and {new.place}"
            raise UsageError(what, todo="rename one")
        self._predicates[new.name] = new

    def predicates(self) -> Mapping[str, Predicate]:
        """Return all known predicates by name."""
        self._discover()
        return dict(sorted(self._predicates.items()))

    def clash(self, name: str) -> str | None:
        """Return a message if two places declare a pass of that name, or None."""
        return self._clashes.get(name)

    def missing(self) -> str:
        """Return "; the passes 'x' of DIST VERSION cannot be loaded: why" for each package that cannot be loaded."""
        return "".join(f"; {broken}" for broken in self._broken)

    def warnings(self) -> list[str]:
        """List the problems of installed packages, one per line; using one of their passes raises."""
        return [*map(str, self._broken), *self._clashes.values()]

    def load_plugin(self, name: str) -> None:
        """Import a plugin, a module by name or a `.py` file by path; its decorators register its passes.

        What an earlier content of the file declared is forgotten.
        """
        self.passes()  # discovered first, so that a name clash is reported for the plugin
        old = discovery.forget_others(name)
        self._passes = {name: one for name, one in self._passes.items() if one.module not in old}
        self._predicates = {name: one for name, one in self._predicates.items() if one.module not in old}
        discovery.import_plugin(name)

    def _discover(self) -> None:
        if self._is_complete:
            return
        with self._loading:
            if self._is_complete or self._is_discovering:
                return
            self._is_discovering = True
            try:
                discovery.import_standard()
                self._broken = discovery.import_installed()
            finally:
                self._is_discovering = False
                self._is_complete = True

    def _has_only_standard(self) -> bool:
        if not self._is_standard:
            others = any(not one.is_standard for one in self._passes.values())
            self._is_standard = not (discovery.has_installed() or others)
        return self._is_standard


def _whereabouts(declared: Pass) -> str:
    return declared.place if declared.origin == declared.file else f"{declared.place} of {declared.origin}"


catalog = Catalog()
"""The passes of this process. Decorators register them here when their modules are imported."""
