"""Imported by the server of the workers before the tests: what a library does once, forks need not do again.

ONNX Runtime and onnx make their tables of operators when the first model comes: 30 ms in a worker that then runs a
model of three nodes. What workers call most often is imported, and called once; the rules of shapes alone take 50 ms.
No thread may be left, for the server is forked, and no arena, for each worker chooses its own.
"""

import numpy as np
import onnx
import onnx.inliner
import onnxruntime

from support import huge_pages
from surgery.base.workers import messages
from surgery.model.runtime import float64, sessions  # noqa: F401
from surgery.model.shapes.declarations import declare_by_names
from surgery.model.targets.kernels import installed
from surgery.verification.inputs.dim_constraints import dim_constraints
from surgery.verification.verdict.checks import run_checker, run_inference

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[n] x) => (float[n] y) { t = Neg(x) y = Abs(t) }'
)
SKELETON = MODEL.SerializeToString()

onnx.inliner.inline_local_functions(MODEL)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
onnxruntime.InferenceSession(SKELETON, options, providers=["CPUExecutionProvider"])
run_checker(SKELETON)
run_inference(SKELETON)
declare_by_names(SKELETON, {"x": ["n"]})
dim_constraints(SKELETON, {"x": ["n"]}, ["n"])
installed()
share_arena = sessions.share_arena
sessions.share_arena = lambda: None
try:
    messages.pack({"result": sessions.run(SKELETON, [{"x": np.ones(1, np.float32)}], limit=1 << 20)})
finally:
    sessions.share_arena = share_arena
huge_pages.merge()
