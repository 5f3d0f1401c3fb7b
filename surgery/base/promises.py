"""The promises of a pass: its results, and its changes of the signature."""

from __future__ import annotations

from enum import Enum
from typing import Literal, get_args

Change = Literal["inputs", "outputs", "names", "order", "types", "dims", "metadata"]
"""The changes of a signature that a pass may declare.

"inputs", "outputs": some are added or removed. "names": some are renamed. "order": the inputs or outputs are in another
order. "types", "dims": those of an input or output. "metadata": entries of the model.
"""

CHANGES: tuple[Change, ...] = get_args(Change)


class Parity(Enum):
    """The promise of a pass about its results, which verification enforces."""

    EXACT = "exact"
    """Every output is bit-identical, because no arithmetic changed."""
    CLOSE = "close"
    """The same mathematics in another order; only rounding differs."""
    LOSSY = "lossy"
    """The pass trades accuracy on purpose; the loss at the outputs is measured against a budget.

    Later steps are compared with the changed model.
    """
    INTENDED = "intended"
    """The pass changes the results on purpose.

    They are not compared: the changed model must pass the checker, run, and give finite outputs where the previous
    model does. Later steps are compared with the changed model. Changes of the signature must still be declared.
    """


COMPARING = (Parity.EXACT, Parity.CLOSE)
"""The promises by which results are compared, element by element."""
