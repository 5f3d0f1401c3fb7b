"""Take models down to older opsets, by `downgrade-opset` and by onnx's converter, and count what becomes of them.

    python tests/tools/opset_down.py --every 10              each tenth of onnx's test models, to 17, 13 and 11
    python tests/tools/opset_down.py --models --to 13 -v     the bundled models, each outcome on a line

A conversion is right (equal or close to the original in ONNX Runtime), refused, wrong (another result, or no valid
model), or unverified, where ONNX Runtime runs one of the two models not at all. A wrong one of `downgrade-opset`
ends the script with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests")]

import sweep  # noqa: E402

from surgery.engine.pipeline.candidate import Candidate  # noqa: E402
from surgery.engine.pipeline.pipeline import Pipeline  # noqa: E402
from surgery.engine.recipe.loader import single_step  # noqa: E402
from surgery.model import storage  # noqa: E402

OURS, THEIRS = "downgrade-opset", "onnx-version-converter"
WORDS = ("right", "refused", "unverified", "wrong")


def outcome(pipeline: Pipeline, declared: str, target: int) -> tuple[str, str]:
    """Say in a word what one of the two makes of a model, and why."""
    options = {"to": target} if declared == OURS else {"target": target}
    (step,) = single_step(declared, options, on_failure="rollback").steps
    attempt = pipeline.attempt(step)
    if attempt.proto is None:
        return "refused" if attempt.exit_code == 1 or declared == THEIRS else "wrong", attempt.complaint
    if not attempt.changed:
        return "refused", "; ".join(dict.fromkeys(refused.reason for refused in attempt.refusals))
    if not attempt.ok:
        return _failed(attempt), attempt.complaint
    return "right", ""


def _failed(attempt: Candidate) -> str:
    is_open = attempt.verdict is not None and attempt.verdict.status == "unverified"
    return "unverified" if is_open else "wrong"


def opset_of(model: storage.StoredModel) -> int:
    """Return the opset of the default domain."""
    return max((item.version for item in model.proto.opset_import if item.domain in ("", "ai.onnx")), default=0)


def outcomes(
    name: str, model: storage.StoredModel, targets: Sequence[int], ours_only: bool
) -> Iterator[tuple[str, int, str, str, str]]:
    """Yield the model, the opset, which of the two, a word, and the reason."""
    wanted = [target for target in targets if target < opset_of(model)]
    if not wanted:
        return
    with closing(Pipeline(model, single_step(OURS, {"to": wanted[0]}, on_failure="rollback"))) as pipeline:
        for target in wanted:
            for declared in (OURS,) if ours_only else (OURS, THEIRS):
                try:
                    word, reason = outcome(pipeline, declared, target)
                except Exception as error:
                    word, reason = "wrong", f"{type(error).__name__}: {error}"
                yield name, target, declared, word, reason


def tell(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the conversions that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--models", action="store_true", help="the bundled models")
    parser.add_argument("--to", type=int, nargs="+", default=[17, 13, 11])
    parser.add_argument("--ours", action="store_true", help="leave out onnx's converter")
    parser.add_argument("-v", action="store_true", help="tell each outcome")
    arguments = parser.parse_args()
    models = sweep.bundled() if arguments.models else sweep.small_models(arguments.start, arguments.every)
    counts: Counter[tuple[str, int, str]] = Counter()
    for name, model in models:
        for found in outcomes(name, model, arguments.to, arguments.ours):
            name, target, declared, word, reason = found
            counts[declared, target, word] += 1
            if arguments.v or (word == "wrong" and declared == OURS):
                tell(f"{name:56} {target:3} {declared:24} {word:10} {' '.join(reason.split())[:200]}")
    tell(" " * 28 + "".join(f"{word:>12}" for word in WORDS))
    for declared, target in sorted({(declared, target) for declared, target, _ in counts}):
        row = "".join(f"{counts[declared, target, word]:>12}" for word in WORDS)
        tell(f"{declared:24} {target:3} {row}")
    return int(any(word == "wrong" and declared == OURS for declared, _, word in counts))


if __name__ == "__main__":
    sys.exit(main())
