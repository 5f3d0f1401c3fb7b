"""Compare optimized decoders and encoders with the raw model on many masks and caches: `python -m suite.padded`.

    python -m suite.padded RAW MODEL...     # a line of JSON for each model

All models run as written, without ONNX Runtime's optimizations. Rows are unpadded, padded left or right, or fully
masked, batches are of size 1 and 3, and caches are empty, of one token, or of odd length.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from suite import feeds, parity

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from models import feeds as zoo_feeds

PAST = "past_sequence_length"


def sets(path: Path) -> Iterator[tuple[str, feeds.Feed]]:
    """Yield input sets with a description of each."""
    session = parity.session(path)
    inputs = [(node.name, node.type, list(node.shape)) for node in session.get_inputs()]
    named = {dim for _, _, dims in inputs for dim in dims if isinstance(dim, str)}
    paddings = ("none", "left", "right", "row") if any("mask" in name for name, *_ in inputs) else ("none",)
    pasts = (0, 1, 5) if any(PAST in name for name in named) else (0,)
    lengths = (1, 8) if any(PAST in name for name in named) else (8,)
    for seed, (padding, past, length, batch) in enumerate(itertools.product(paddings, pasts, lengths, (1, 3))):
        sizes = {**zoo_feeds.SIZES, PAST: past, "batch": batch, "batch_size": batch}
        sizes |= {"sequence": length, "sequence_length": length}
        word = f"{padding} padding, batch {batch}" + (f", past {past}, {length} new" if len(pasts) > 1 else "")
        yield word, zoo_feeds.draw(inputs, sizes, np.random.default_rng(seed), padding=padding)


def wrong(raw: list[tuple[str, feeds.Feed, list[Any]]], names: list[str], model: Path) -> dict[str, Any]:
    """Return on how many sets a model is wrong, the first difference, and the largest error on the other sets."""
    try:
        session = parity.session(model)
    except Exception as problem:
        return {"sets": len(raw), "wrong": len(raw), "first": f"does not load: {' '.join(str(problem).split())[:160]}"}
    count, first, worst = 0, "", 0.0
    for word, feed, expected in raw:
        error, problem = _compared(session, names, feed, expected)
        worst = max(worst, 0.0 if problem else error)
        count += bool(problem)
        first = first or (f"{problem} with {word}" if problem else "")
    return {"sets": len(raw), "wrong": count, "first": first, "error": worst}


def _compared(
    session: ort.InferenceSession, names: list[str], feed: feeds.Feed, expected: list[Any]
) -> tuple[float, str]:
    taken = {node.name for node in session.get_inputs()}
    try:
        outputs = session.run(names, {name: array for name, array in feed.items() if name in taken})
    except Exception as problem:
        return 0.0, f"does not run: {' '.join(str(problem).split())[:160]}"
    worst = 0.0
    for name, left, right in zip(names, expected, outputs):
        error, word = parity.difference(left, right)
        if word or error > parity.LIMIT:
            return error, f"{name} {word or f'is off by {error:.1e}'}"
        worst = max(worst, error)
    return worst, ""


def reference(path: Path) -> tuple[list[tuple[str, feeds.Feed, list[Any]]], list[str]]:
    """Run the raw model on all its sets; return the sets with their outputs, and the output names."""
    session = parity.session(path)
    names = [node.name for node in session.get_outputs()]
    return [(word, feed, session.run(names, feed)) for word, feed in sets(path)], names


def main(raw: str, *models: str) -> None:
    """Print a line of JSON for each model."""
    expected, names = reference(Path(raw))
    for model in models:
        print(json.dumps(wrong(expected, names, Path(model))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
