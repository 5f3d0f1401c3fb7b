"""Options by which a recipe points into a model: at nodes, and at tensors.

A node selector is written in one of three ways:

    encoder/layer.*/attention/*             the nodes of these names; `*` stands for any letters, `?` for one
    {op: Conv, attribute: {group: 1}}       the nodes for which all of it holds
    [{op: Relu}, head/*]                    the nodes for which any of it holds

A mapping may have these keys, each with a text or a list of texts, any of which may fit:

    name        the name of a node, or a glob; a node without one is called by what it makes, "Relu -> y"
    op          the operator: Conv, com.acme::Foo, or a glob
    domain      the domain of the operator, or a glob; ai.onnx is the default one
    attribute   names and values of attributes, {axis: 1}; what a node leaves out counts by its default
    pattern     a pattern in ONNX text: all nodes of each place where it fits
    made_by     a pass that made or edited the node, or a glob
    from        the name in the original model of a node that it comes from, or a glob
    between     {from: [tensors], to: [tensors]}: the nodes on a way from these tensors to those; either may be left out

Nodes of subgraphs and of functions are found too. A selector that selects nothing is an error of its user.
"""

from __future__ import annotations

from surgery.patterns.select.renames import Renames
from surgery.patterns.select.selector import NodeSelector
from surgery.patterns.select.tensors import TensorNames

__all__ = ["NodeSelector", "Renames", "TensorNames"]
