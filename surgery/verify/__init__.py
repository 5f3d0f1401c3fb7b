"""Legal inputs, runs, comparison, checks, the verdict.

The names are imported on first use: workers import modules of this package, and need few of the others.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgery.verify.checks import Signature as Signature
    from surgery.verify.checks import check as check
    from surgery.verify.checks import new_findings as new_findings
    from surgery.verify.checks import signature as signature
    from surgery.verify.inputs.given import with_sets_beside as with_sets_beside
    from surgery.verify.pair import Pair as Pair
    from surgery.verify.pair import verify as verify
    from surgery.verify.verdict import Verdict as Verdict
    from surgery.verify.verdict import Verifier as Verifier

_HOMES = {
    "Pair": "pair",
    "verify": "pair",
    "Signature": "checks",
    "Verdict": "verdict",
    "Verifier": "verdict",
    "check": "checks",
    "new_findings": "checks",
    "with_sets_beside": "inputs.given",
    "signature": "checks",
}

__all__ = [
    "Pair",
    "Signature",
    "Verdict",
    "Verifier",
    "check",
    "new_findings",
    "signature",
    "verify",
    "with_sets_beside",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'surgery.verify' has no attribute '{name}'")
    return getattr(importlib.import_module(f"surgery.verify.{home}"), name)


class _Callable(ModuleType):
    """Lets `surgery.verify(a, b)` be the function, as the package has the same name."""

    def __call__(self, *models: Any, **options: Any) -> Any:
        from surgery.verify.pair import verify

        return verify(*models, **options)


sys.modules[__name__].__class__ = _Callable
