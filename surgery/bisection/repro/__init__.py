"""Repro: the few nodes in which two models differ, cut out of both, with inputs that show the difference.

    found = make(verifier, original, changed, weights, promise)
    write(found, Path("repro"))

`original` is the model that a pass was given and `changed` what it made of it. The values that enter the cut are those
that the original has there, so that what goes wrong elsewhere has no part in it.
"""

from __future__ import annotations

from surgery.bisection.repro.folder import check_folder as check_folder
from surgery.bisection.repro.folder import clear as clear
from surgery.bisection.repro.folder import write as write
from surgery.bisection.repro.make import NoRepro as NoRepro
from surgery.bisection.repro.make import Repro as Repro
from surgery.bisection.repro.make import make as make

__all__ = ["NoRepro", "Repro", "check_folder", "clear", "make", "write"]
