"""Random outputs: the same distribution passes, another one does not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from surgery.base.promises import Parity
from surgery.verification.comparing import moments as moments_module
from surgery.verification.comparing.details import Verdict
from surgery.verification.comparing.moments import REPEATS, SEEDS, compare
from surgery.verification.verdict.verifier import Verifier

IR = '<ir_version: 10, opset_import: ["": 21]>'
ONE = "(float[N,S] x) => (float[N,S] y)"
TWO = "(float[N,S] x) => (float[N,S] y, float[N,S] z)"
WIDE = "(float[N,S] x) => (float[N,T] y)"


def _between(io: str, before: str, after: str, promise: Parity = Parity.CLOSE) -> Verdict:
    one, other = (onnx.parser.parse_model(f"{IR}\ng {io} {{ {body} }}").SerializeToString() for body in (before, after))
    return Verifier(one, seeded=False).verify(other, promise)


def _dropout(ratio: float, name: str = "x") -> str:
    return f"r = Constant<value_float={ratio}>() t = Constant<value=bool {{1}}>() y = Dropout({name}, r, t)"


NOISE = "r = RandomNormalLike(x) y = Add(x, r)"

RIGHT = {
    "another way to add": (ONE, NOISE, "r = RandomNormalLike(x) n = Neg(r) m = Sub(x, n) y = Identity(m)"),
    "the other sign": (ONE, NOISE, "r = RandomNormalLike(x) y = Sub(x, r)"),
    "scaled afterwards": (
        ONE,
        NOISE.replace("Like(", "Like<scale=2.0>("),
        f"{NOISE.split('y =')[0]} d = Add(r, r) y = Add(x, d)",
    ),
    "one number for all": (
        ONE,
        NOISE.replace("Like(x)", "<shape=[1]>()"),
        "t = Identity(x) r = RandomNormal<shape=[1]>() y = Add(t, r)",
    ),
    "dropout": (ONE, _dropout(0.5), f"i = Identity(x) {_dropout(0.5, 'i')}"),
    "bernoulli": (ONE, "s = Sigmoid(x) y = Bernoulli(s)", "i = Identity(x) s = Sigmoid(i) y = Bernoulli(s)"),
}

WRONG = {
    "uniform of the same mean and deviation": (
        ONE, NOISE, "r = RandomUniformLike<low=-1.7320508, high=1.7320508>(x) y = Add(x, r)", "distribution"),
    "another mean": (ONE, NOISE, NOISE.replace("Like(", "Like<mean=0.3>("), "mean"),
    "another scale": (ONE, NOISE, NOISE.replace("Like(", "Like<scale=1.3>("), "variance"),
    "one number for all": (ONE, NOISE, "r = RandomNormal<shape=[1]>() y = Add(x, r)", ""),
    "another ratio": (ONE, _dropout(0.5), _dropout(0.4), ""),
    "bernoulli of the rest": (ONE, "s = Sigmoid(x) y = Bernoulli(s)", "n = Neg(x) s = Sigmoid(n) y = Bernoulli(s)", ""),
    "a constant": (
        ONE, NOISE, "z = Constant<value_float=0.0>() r = RandomNormalLike(x) n = Mul(r, z) y = Add(x, n)", "variance"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_the_same_distribution_passes(name):
    verdict = _between(*RIGHT[name])
    assert verdict.status == "equal", verdict
    assert "'y' by shape, type and distribution, because they are random" in verdict.message


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_another_distribution_is_different(name):
    io, before, after, what = WRONG[name]
    verdict = _between(io, before, after)
    assert verdict.status == "different", verdict
    assert "standard errors over 4096 runs, where chance allows" in verdict.message
    assert what in verdict.message


@pytest.mark.slow
def test_inverted_draws_of_the_runtime_are_compared_by_shape_only():
    before = "s = Sigmoid(x) y = Bernoulli(s)"
    after = "s = Sigmoid(x) u = RandomUniformLike(s) l = Less(u, s) y = Cast<to=1>(l)"
    verdict = _between(ONE, before, after)
    assert verdict.status == "equal"
    assert "'y' by shape and type only" in verdict.message


@pytest.mark.slow
def test_slow_random_outputs_are_compared_by_shape_only(monkeypatch):
    monkeypatch.setattr(moments_module, "_SECONDS", 0.0)
    verdict = _between(ONE, NOISE, NOISE.replace("Like(", "Like<mean=0.3>("))
    assert verdict.status == "equal"
    assert "'y' by shape and type only" in verdict.message


@pytest.mark.slow
def test_verdicts_on_random_outputs_are_reproducible():
    found = {_between(ONE, NOISE, NOISE.replace("Like(", "Like<mean=0.3>(")).message for _ in range(2)}
    assert len(found) == 1


# The test itself, on samples


def _sample(seed: int, **outputs):
    """Draw each output with its own function of a generator, once for each run."""
    rng = np.random.default_rng(seed)
    runs = [{name: make(rng) for name, make in outputs.items()} for _ in range(SEEDS * REPEATS)]
    return {name: [run[name] for run in runs] for name in outputs}


def _together(seed: int, draw):
    rng = np.random.default_rng(seed)
    runs = [draw(rng) for _ in range(SEEDS * REPEATS)]
    return {name: [run[name] for run in runs] for name in runs[0]}


def _normal(rng):
    return rng.standard_normal(6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw",
    [
        _normal,
        lambda rng: np.full(6, rng.standard_normal()),
        lambda rng: rng.standard_cauchy(6),
        lambda rng: rng.integers(0, 3, 6),
        lambda rng: rng.random(6) < 0.01,
        lambda rng: np.zeros(6),
        lambda rng: np.where(rng.random(6) < 0.3, np.nan, 1.0),
        lambda rng: np.exp(5 * rng.standard_normal(6)),
        lambda rng: np.ones(int(rng.integers(1, 5))),
        lambda rng: np.array(["a"], object),
        lambda rng: rng.standard_normal(3) + 1j * rng.standard_normal(3),
        lambda rng: [rng.standard_normal(2), rng.standard_normal(3)],
    ],
    ids=[
        "normal",
        "dependent",
        "cauchy",
        "integers",
        "rare",
        "constant",
        "nan",
        "heavy",
        "sizes",
        "texts",
        "complex",
        "seq",
    ],
)
def test_samples_of_the_same_distribution_never_differ(draw):
    for seed in range(3):
        assert compare(_sample(seed, y=draw), _sample(seed + 100, y=draw)) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "what"),
    [
        (lambda rng: np.where(rng.random(6) < 0.2, np.nan, rng.standard_normal(6)), ""),
        (lambda rng: np.repeat(rng.standard_normal(3), 2), "dependence"),
        (lambda rng: np.concatenate([np.repeat(rng.standard_normal(1), 2) * [1, -1], rng.standard_normal(4)]), ""),
        (lambda rng: np.round(rng.standard_normal(6)), ""),
        (lambda rng: np.concatenate([rng.standard_normal(5), 2 * rng.standard_normal(1)]), "variance of an element"),
    ],
    ids=["nan", "repeated", "opposite", "rounded", "one element"],
)
def test_samples_of_two_distributions_differ(draw, what):
    found = compare(_sample(0, y=_normal), _sample(1, y=draw))
    assert found
    assert what in found


@pytest.mark.slow
def test_two_outputs_merged_into_one_draw_differ():
    def merged(rng):
        value = _normal(rng)
        return {"y": value, "z": value}

    apart = _sample(0, y=_normal, z=_normal)
    assert compare(apart, _sample(1, y=_normal, z=_normal)) == ""
    assert "outputs 'y' and 'z'" in compare(apart, _together(2, merged))
    assert "outputs 'y' and 'z'" in compare(_together(3, merged), apart)
    assert compare(_together(4, merged), _together(5, merged)) == ""


def test_outputs_of_varying_sizes_are_compared_by_their_summaries():
    def sized(mean):
        return lambda rng: mean + rng.standard_normal(int(rng.integers(1, 5)))

    assert compare(_sample(0, y=sized(0)), _sample(1, y=sized(0))) == ""
    assert compare(_sample(0, y=sized(0)), _sample(1, y=sized(1)))
