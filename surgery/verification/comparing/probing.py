"""The search for inputs that an original accepts, with one engine."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress

from surgery.base.errors import WorkerError
from surgery.model.runtime.engine import LIMITS, Outputs
from surgery.verification.comparing.compare import tensors, total_bytes
from surgery.verification.comparing.original_inputs import OriginalInputs
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.given import Given
from surgery.verification.inputs.input_sets import CHEAP, TRIVIAL
from surgery.verification.inputs.search import Found, search
from surgery.verification.running.sizes_given import require_room

_CRASHES = 3
"""Number of crashed processes that ends a search."""


class SearchEnded(Exception):  # noqa: N818 - a way out of the search, not an error
    """Further inputs are not worth trying."""


class Probing:
    """The search with the engine of `inputs`: one session, probed repeatedly.

    `empty` are the outputs that the graph declares to be empty, `seed` is that of drawn inputs, and `remember` gets the
    outputs that a probe has computed.
    """

    def __init__(
        self,
        skeleton: bytes,
        inputs: OriginalInputs,
        empty: Collection[str],
        seed: int,
        remember: Callable[[Binding, Outputs], None],
    ) -> None:
        self.inputs = inputs
        self.engine = inputs.worker
        self._skeleton, self._nature, self._seed, self._remember = skeleton, empty, seed, remember
        self.gap = ""
        self.empty = self.empty_large = self.content = False
        self.crashes: list[WorkerError] = []
        self._found = Found()

    def search(self, given: Given, earlier: Found, *, once: bool = False) -> Found:
        """Try the given inputs; then search, accepting empty outputs only if there are no others.

        With `once`, one input is enough. Nothing is searched if all that was accepted `earlier` is accepted.
        """
        found = self._found = Found()
        with suppress(SearchEnded):
            self._try(given)
            if self.inputs.draws and not (once and given.accepted) and not self._accepts_all(earlier, found):
                self._search(found, once)
                if not found.accepted and self.empty:
                    self.content = True
                    found.refused.clear()
                    self._search(found, once)
                if not found.accepted:
                    self._borrow(given, found)
        return found

    def _accepts_all(self, earlier: Found, found: Found) -> bool:
        """Return whether all bindings that were accepted earlier are for these free dims, and are accepted again."""
        names = set(self.inputs.plan.dims.names)
        if not earlier.accepted or any(set(binding.dims) != names for binding in earlier.accepted):
            return False
        if any(self.probe(binding) is not None for binding in earlier.accepted):
            self.empty = self.empty_large = False
            return False
        found.accepted += earlier.accepted
        found.demands, found.meets, found.compared = earlier.demands, earlier.meets, earlier.compared
        return True

    def _search(self, found: Found, once: bool) -> None:
        inputs = self.inputs
        asked = (inputs.plan, self._seed, self.probe, inputs.implied, inputs.cost, inputs.shapes, found)
        search(*asked, covers=inputs.draws_all, once=once)

    def _try(self, given: Given) -> None:
        """Run the original on the given inputs."""
        given.accepted.clear()
        for binding in given.sets:
            outcome = self.engine.run(self._skeleton, [binding.feed], keep=True)
            if outcome.crash is None and outcome.failure is not None:
                self.gap = outcome.failure
                raise SearchEnded
            result = outcome.failure or outcome.runs[0]
            given.accept(binding, result if isinstance(result, str) else None)

    def _borrow(self, given: Given, found: Found) -> None:
        """Search at the dims of the given inputs, which the original is known to accept."""
        for binding in given.accepted:
            point = Binding(dict(binding.dims), seed=self._seed)
            if self.probe(point) is None:
                found.accepted.append(point)
                return

    def probe(self, binding: Binding) -> str | None:
        """Run the original with a binding; return None if that succeeds, else the reason."""
        cost = self.inputs.cost(binding)
        is_dear = cost >= TRIVIAL
        if not self.content and ((is_dear and self.empty_large) or (cost > CHEAP and self.empty)):
            return "an output is empty at other sizes"
        outcome = self.engine.run(self._skeleton, [self.inputs.feed(binding)], keep=True)
        require_room(outcome, [binding], self.inputs.given_dims)
        if outcome.crash is not None:
            self.crashes.append(outcome.crash)
            hopeless = outcome.crash.signal == "timeout" or not binding.dims
            if hopeless or len(self.crashes) == _CRASHES:
                raise SearchEnded
            return outcome.crash.what
        if outcome.failure is not None:
            self.gap = outcome.failure
            raise SearchEnded
        result = outcome.runs[0]
        if isinstance(result, str):
            return result
        # If a model is expensive at the first size, an empty output is accepted as it is; an output that is empty at
        # small sizes and at a large one is empty at others.
        if not self.content and (self.empty or not is_dear) and self._has_empty(result):
            self.empty, self.empty_large = True, is_dear or self.empty_large
            return "an output is empty"
        self._remember(binding, result)
        self._found.sizes[binding.dim_key] = total_bytes(result)
        return None

    def _has_empty(self, outputs: Outputs) -> bool:
        """Return whether an output has no elements although its declared shape does not say so."""
        nature = self._nature
        return any(name not in nature and not any(t.size for t in tensors(value)) for name, value in outputs.items())

    def rejection(self, found: Found, problem: str) -> tuple[str, bool] | None:
        """Return why every input failed, and whether other sizes might not: of a free dim without a requested size.

        None if a limit of time or memory ended a run, which says nothing of the model.
        """
        if not (found.refused or self.crashes) or any(crash.signal in LIMITS for crash in self.crashes):
            return None
        dims = self.inputs.plan.dims
        if any(name not in dims.wishes for name in dims.names) or not found.refused:
            return problem, bool(dims.names)
        return found.refused[0][1], False

    def explain(self, found: Found, given: Given) -> str:
        """Return why nothing was accepted."""
        if self.gap:
            return self.gap
        if self.crashes:
            return f"the original fails in {self.engine.title}: {self.crashes[0].what}"
        if given.left_out and not found.refused:
            return f"none of the given input sets fits the model: {given.left_out[0][1]}"
        reason = found.refused[0][1] if found.refused else "the search ran out of time"
        names = ", ".join(found.refused[0][0].dims) if found.refused else ""
        # What helps comes first, because long messages are cut at the end.
        sizes = f"the sizes of {names} with --dims, or " if names else "" if found.refused else "sizes with --dims, or "
        advice = f"give {sizes}inputs with --inputs"
        return "; ".join([f"no legal input found: {advice}", *found.demands[:1], f"at first: {reason}"])
