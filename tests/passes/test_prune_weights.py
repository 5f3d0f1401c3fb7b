"""Bundled models with pruned weights: what is zero, what is gone, and that they still run."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import quantized
from support.breadth import sampled


@pytest.mark.parametrize("pattern", sampled(["unstructured", "2:4", "channels"], 3))
@pytest.mark.parametrize(
    "name", sampled(["resnet-tiny", "bert-tiny.ts", "mobilenet-tiny", "vit-tiny", "llama-tiny"], 3)
)
def test_a_bundled_model_is_valid_and_runs(name: str, pattern: str) -> None:
    model = quantized.bundled(name)
    options = {"pattern": pattern, **({} if pattern == "2:4" else {"sparsity": 0.25})}
    after = quantized.apply("prune-weights", model, {**options, "min_size": 0})
    onnx.checker.check_model(after, full_check=True)
    feed = quantized.feed_of(model)
    plain, optimized = (quantized.run(after, feed, optimized=each) for each in (False, True))
    assert quantized.snr(plain, optimized) > 60
    assert [array.shape for array in quantized.run(model, feed)] == [array.shape for array in plain]


def weights(model: onnx.ModelProto) -> list[np.ndarray]:
    """Return the weights of the Convs, and those of products, with what is summed up first along axis 1."""
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    convs = [held[node.input[1]] for node in model.graph.node if node.op_type == "Conv"]
    products = [held[node.input[1]] for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in held]
    return [*convs, *(product.T for product in products)]


def test_two_of_four_adjacent_weights_are_zero() -> None:
    model = quantized.bundled("resnet-tiny")
    found = weights(quantized.apply("prune-weights", model, {"pattern": "2:4", "min_size": 0}))
    deep = [weight for weight in found if weight.shape[1] % 4 == 0]
    assert deep
    for weight in deep:
        groups = np.moveaxis(weight, 1, -1).reshape(-1, 4)
        assert ((groups == 0).sum(axis=1) >= 2).all()


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 0.9])
def test_the_share_of_zeros_is_as_requested(sparsity: float) -> None:
    model = quantized.bundled("resnet-tiny")
    before = weights(model)
    after = weights(quantized.apply("prune-weights", model, {"sparsity": sparsity, "min_size": 0}))
    for old, new in zip(before, after, strict=True):
        assert (new == 0).sum() == int(sparsity * old.size)
        # What stays is no smaller than what went.
        assert np.abs(old[new != 0]).min() >= np.abs(old[new == 0]).max()


def test_zero_channels_can_be_removed_with_the_same_result() -> None:
    model = quantized.bundled("resnet-tiny")
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        # The weight and bias of a Conv; the shift and mean of a BatchNormalization, with which a channel stays zero.
        for name in {"Conv": node.input[1:], "BatchNormalization": node.input[2:4]}.get(node.op_type, ()):
            array = numpy_helper.to_array(tensors[name]).copy()
            array[::4] = 0
            tensors[name].CopyFrom(numpy_helper.from_array(array, name))
    after = quantized.apply(
        "prune-weights", model, {"pattern": "channels", "sparsity": 0.25, "min_size": 0, "ops": ["Conv"]}
    )
    assert len(after.SerializeToString()) < 0.97 * len(model.SerializeToString())
    feed = quantized.feed_of(model)
    assert quantized.snr(quantized.run(model, feed, optimized=False), quantized.run(after, feed, optimized=False)) > 100
