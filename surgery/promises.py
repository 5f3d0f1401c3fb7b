"""What a pass promises about the model it changed: its results, and what of its signature is another."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal, get_args

Change = Literal["inputs", "outputs", "names", "order", "types", "dims", "metadata"]
"""What a pass may declare to change of a signature.

"inputs", "outputs": there are fewer or more of them. "names": some are renamed. "order": the inputs or the
outputs stand in another order. "types", "dims": those of an input or output. "metadata": entries of the model.
"""

CHANGES: tuple[Change, ...] = get_args(Change)


def unknown_changes(changes: Iterable[str]) -> list[str]:
    """List what is no change of a signature that a pass could declare."""
    return sorted(change for change in changes if change not in CHANGES)


class Parity(Enum):
    """The promise that a pass makes, and that verification holds it to.

    EXACT: every output is bit-identical, because no arithmetic changed.
    CLOSE: the same mathematics in another order; only rounding differs.
    LOSSY: the pass trades accuracy on purpose; what the outputs lose is measured, and held to a budget. From then on
        the changed model is what later steps are compared with.
    INTENDED: the pass means to compute something else. There is nothing to compare: the changed model has to pass the
        checker, to run, and to give numbers where the model before does. From then on it is what later steps are
        compared with. What of the signature changes has to be declared all the same.
    """

    EXACT = "exact"
    CLOSE = "close"
    LOSSY = "lossy"
    INTENDED = "intended"


COMPARING = (Parity.EXACT, Parity.CLOSE)
"""The promises by which results are compared, element by element."""
