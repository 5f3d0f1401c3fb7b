"""Small models where converters of opsets are known to be wrong, or to stop; each with an opset to go to."""

from __future__ import annotations

KNOWN = {
    "Hardmax over several axes": (
        13,
        """<ir_version: 7, opset_import: ["" : 12]>
        g (float[2,3,4] x) => (float[2,3,4] y) { y = Hardmax<axis = 1>(x) }""",
    ),
    "Resize that interpolates": (
        11,
        """<ir_version: 5, opset_import: ["" : 10]>
        g (float[1,1,3,3] x) => (float[1,1,6,6] y) <float[4] s = {1, 1, 2, 2}> { y = Resize<mode = "linear">(x, s) }""",
    ),
    "Upsample that interpolates": (
        11,
        """<ir_version: 4, opset_import: ["" : 9]>
        g (float[1,1,3,3] x) => (float[1,1,6,6] y) <float[4] s = {1, 1, 2, 2}> {
            y = Upsample<mode = "linear">(x, s)
        }""",
    ),
    "Resize by scales that are an input": (
        13,
        """<ir_version: 5, opset_import: ["" : 10]>
        g (float[1,1,5,7] x, float[4] s) => (float[?,?,?,?] y) { y = Resize(x, s) }""",
    ),
    "GroupNormalization": (
        21,
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[1,4,2,2] x, float[2] s, float[2] b) => (float[1,4,2,2] y) {
            y = GroupNormalization<num_groups = 2>(x, s, b)
        }""",
    ),
    "GroupNormalization in a function": (
        21,
        """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[1,4,2,2] x, float[2] s, float[2] b) => (float[1,4,2,2] y) { y = local.f(x, s, b) }
        <domain: "local", opset_import: ["" : 18]>
        f (x, s, b) => (y) { y = GroupNormalization<num_groups = 2>(x, s, b) }""",
    ),
    "a function with an operator whose meaning changed": (
        18,
        """<ir_version: 8, opset_import: ["" : 12, "local" : 1]>
        g (float[2,3,4] x) => (float[2] y) { y = local.f(x) }
        <domain: "local", opset_import: ["" : 12]>
        f (x) => (y) { h = Softmax<axis = 1>(x) y = ReduceMax<axes = [1, 2], keepdims = 0>(h) }""",
    ),
    "a branch with an operator whose meaning changed": (
        18,
        """<ir_version: 7, opset_import: ["" : 12]>
        g (float[2,3,4] x, bool c) => (float[?] y) {
            y = If (c) <
                then_branch = t () => (float[?] a) {
                    h = Hardmax<axis = 1>(x)
                    a = ReduceSum<axes = [1, 2], keepdims = 0>(h)
                },
                else_branch = e () => (float[?] b) { b = ReduceMean<axes = [1, 2], keepdims = 0>(x) }
            >
        }""",
    ),
    "a value of Pad that is no float": (
        13,
        """<ir_version: 5, opset_import: ["" : 10]>
        g (double[4] x) => (double[6] y) { y = Pad<pads = [1, 1], value = 0.1>(x) }""",
    ),
}

INPUTS = {"Resize by scales that are an input": {"s": [1, 1, 0.6, 1.8]}}
"""Inputs that cannot be drawn."""
