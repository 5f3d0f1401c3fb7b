"""Passes over elementwise operators, on random models whose operands broadcast; ONNX Runtime alone is the judge.

`python tests/passes/test_broadcasting.py 10000 600` tries the seeds from 10000 on for 600 seconds.
"""

import sys
import time
import zlib
from collections.abc import Callable, Iterator

import onnx
import pytest
from support import broadcasting, lacking
from support.breadth import sampled

from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import Pass
from surgery.features import testing

EXPRESSIONS, CASES = 40, 240


@pytest.mark.parametrize("block", sampled(range(4), 4))
def test_random_expressions_keep_their_shapes_and_values(block: int) -> None:
    wrong = [text for seed in range(block, EXPRESSIONS, 4) for text in _outlived(of_expression, seed)]
    assert wrong == []


@pytest.mark.parametrize("block", sampled(range(4), 4))
def test_cases_with_other_shapes_keep_their_shapes_and_values(block: int) -> None:
    wrong = [text for seed in range(block, CASES, 4) for text in _outlived(of_case, seed)]
    assert wrong == []


@pytest.mark.parametrize(
    ("constants", "nodes"),
    [
        ("float k = {0.3}, float[3,1] z = {0, 0, 0}", "a = Mul(x, k) y = Add(a, z)"),
        ("float k = {0.3}, float[3,1] z = {0, 0, 0}", "a = Add(x, z) y = Mul(a, k)"),
        ("float k = {0.3}, float[3,1] z = {0, 0, 0}", "a = Div(x, k) y = Sub(a, z)"),
        ("float[3,1] z = {0, 0, 0}", "a = Sub(z, x) y = Neg(a)"),
        ("float[1,1,1] o = {1}, float k = {0.3}", "a = Mul(x, o) y = Add(a, k)"),
        ("float[0] e = {}, float k = {0.3}", "a = Mul(x, k) y = Add(a, e)"),
    ],
)
def test_a_constant_that_changes_no_value_still_gives_the_shape(constants: str, nodes: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[N,M] x) => (float y) <{constants}> {{ {nodes} }}'
    model = broadcasting.declared(onnx.parser.parse_model(text))
    assert model is not None
    assert list(_wrong(model, broadcasting.passes(), 0)) == []


def _outlived(of: Callable[[int], Iterator[str]], seed: int) -> list[str]:
    broadcasting.passes(), broadcasting.templates()  # once, not in each fork
    return lacking.outlived(lambda: list(of(seed)))


def of_expression(seed: int) -> Iterator[str]:
    """Say what passes make wrong of one random expression, each of them by itself."""
    model = broadcasting.Expression(seed).model()
    return iter(()) if model is None else _wrong(model, broadcasting.passes(), seed)


def of_case(seed: int) -> Iterator[str]:
    """Say what a pass makes wrong of one of its cases with other shapes."""
    case = _case(seed)
    model = broadcasting.variant(case, seed)
    return iter(()) if model is None else _wrong(model, (catalog.find(case.pass_name),), seed)


def _case(seed: int) -> testing.Case:
    """Choose a case by its name, so that others that come and go change little."""
    return min(broadcasting.templates(), key=lambda case: zlib.crc32(f"{case.name} {seed}".encode()))


def _wrong(model: onnx.ModelProto, passes: tuple[Pass, ...], seed: int) -> Iterator[str]:
    for declared in passes:
        found, after = broadcasting.wrong(model, declared, seed)
        if found is not None:
            shown = "\n".join(onnx.printer.to_text(one.graph) for one in (model, after))
            yield f"seed {seed}: {found}\n{shown}"


def main(first: int, seconds: float) -> None:
    """Run a campaign."""
    end, seed, count = time.monotonic() + seconds, first, 0
    while time.monotonic() < end:
        for text in (*of_expression(seed), *of_case(seed), *of_case(seed + 10**9)):
            count += 1
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        seed += 1
    sys.stdout.write(f"{seed - first} seeds, {count} wrong\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
