"""Sites are divided by operator, kind of layer and shape of weight."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from surgery.features.tuning.site_groups import SiteGroup, groups_of, selectors
from surgery.model import storage
from surgery.model.graph import text

MODEL = """
g (float[2,8,16,16] x) => (float y, float q) {
    [first] a = Conv <group = 8, pads = [1,1,1,1]> (x, d)
    [second] b = Conv <group = 8, pads = [1,1,1,1]> (a, d)
    [third] c = Conv (b, p)
    [fourth] e = Conv (c, r)
    [fifth] q = Conv (x, k)
    [sixth] y = Relu(e)
}
"""
WEIGHTS = {"d": (8, 1, 3, 3), "p": (16, 8, 1, 1), "r": (32, 16, 1, 1), "k": (8, 8, 3, 3)}


@pytest.fixture(scope="module")
def model() -> storage.StoredModel:
    proto = text.parse(MODEL)
    for name, dims in WEIGHTS.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(dims, np.float32), name))
    return storage.from_proto(proto)


CONVS = ["first", "second", "third", "fourth", "fifth"]


def shown(groups: tuple[SiteGroup, ...]) -> dict[str, tuple[str, ...]]:
    return {group.title: group.nodes for group in groups}


def test_weights_of_equal_shape_form_a_group(model: storage.StoredModel) -> None:
    assert shown(groups_of(model, CONVS, 8)) == {
        "Conv 1x1 with weights of 32x16x1x1": ("fourth",),
        "Conv 3x3 with weights of 8x8x3x3": ("fifth",),
        "Conv 1x1 with weights of 16x8x1x1": ("third",),
        "depthwise Conv 3x3 with weights of 8x1x3x3": ("first", "second"),
    }


def test_many_groups_are_merged_into_few(model: storage.StoredModel) -> None:
    assert shown(groups_of(model, CONVS, 3)) == {
        "Conv 1x1 with 100 to 1k weights": ("third", "fourth"),
        "Conv 3x3 with 100 to 1k weights": ("fifth",),
        "depthwise Conv 3x3 with 10 to 100 weights": ("first", "second"),
    }
    assert set(shown(groups_of(model, CONVS, 1))) == {"Conv 1x1", "Conv 3x3", "depthwise Conv 3x3"}


def test_the_most_expensive_group_comes_first(model: storage.StoredModel) -> None:
    titles = [*shown(groups_of(model, [*CONVS, "sixth"], 8))]
    assert (titles[0], titles[-1]) == ("Conv 1x1 with weights of 32x16x1x1", "Relu")


def test_groups_are_selected_by_operator_unless_others_share_it(model: storage.StoredModel) -> None:
    groups = groups_of(model, [*CONVS, "sixth"], 8)
    relu = [group for group in groups if group.op == "Relu"]
    convs = [group for group in groups if group.op == "Conv"]
    assert selectors(relu, convs) == [{"op": ["Relu"]}]
    assert selectors(convs, relu) == [{"op": ["Conv"]}]
    assert selectors([convs[-1], *relu], convs[:-1]) == [{"op": ["Relu"]}, {"name": ["third"]}]


def test_missing_nodes_are_left_out(model: storage.StoredModel) -> None:
    assert shown(groups_of(model, ["fifth", "gone"], 8)) == {"Conv 3x3 with weights of 8x8x3x3": ("fifth",)}
