"""Imported by the server of the workers before the tests: what a library does once, forks need not do again.

ONNX Runtime and onnx make their tables of operators when the first model comes: 30 ms in a worker that then runs a
model of three nodes. What workers call most often is imported, too; the rules of shapes alone take 50 ms. No thread may
be left, for the server is forked.
"""

import onnx
import onnx.checker
import onnx.inliner
import onnx.shape_inference
import onnxruntime

import surgery.verification.verdict.checks  # noqa: F401
from surgery.verification.inputs.dim_constraints import dim_constraints

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[n] x) => (float[n] y) { t = Neg(x) y = Abs(t) }'
)

onnx.checker.check_model(MODEL, full_check=True)
onnx.inliner.inline_local_functions(MODEL)
onnx.shape_inference.infer_shapes(MODEL)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
onnxruntime.InferenceSession(MODEL.SerializeToString(), options, providers=["CPUExecutionProvider"])
dim_constraints(MODEL.SerializeToString(), {"x": ["n"]}, ["n"])
