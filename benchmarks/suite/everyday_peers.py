"""How other installed tools do the everyday tasks of `support.first_guesses`: a command or a script for each."""

from __future__ import annotations

from typing import Final, NamedTuple

FLAT = "/model/classifier/classifier.0/Flatten_output_0"
T5_LAYER = "/model/encoder/block.5/layer.0/Add_output_0"


class Peer(NamedTuple):
    """A tool, and what to type for the task: a command if it begins with `python -m` or a name, else a script."""

    tool: str
    text: str
    remark: str = ""

    @property
    def is_command(self) -> bool:
        """Whether it is a command in one line."""
        return "\n" not in self.text.strip() and not self.text.startswith(("import", "from"))

    @property
    def lines(self) -> int:
        """The number of lines to type."""
        return len([line for line in self.text.splitlines() if line.strip()])


NONE: Final = Peer("none", "")

PEERS: Final[dict[str, Peer]] = {
    "append NMS": Peer(
        "onnx",
        """
import onnx
from onnx import TensorProto, helper, numpy_helper
import numpy as np
m = onnx.load("detector.onnx")
g = m.graph
one = {"four": [4], "zero": [0], "big": [2**31], "axis": [1], "most": [100], "iou": [0.45], "least": [0.25]}
for name, value in one.items():
    kind = np.float32 if name in ("iou", "least") else np.int64
    g.initializer.append(numpy_helper.from_array(np.array(value, kind), name))
g.node.append(helper.make_node("Slice", ["found", "zero", "four", "axis"], ["boxes_t"]))
g.node.append(helper.make_node("Transpose", ["boxes_t"], ["boxes"], perm=[0, 2, 1]))
g.node.append(helper.make_node("Slice", ["found", "four", "big", "axis"], ["scores"]))
nms = ["boxes", "scores", "most", "iou", "least"]
g.node.append(helper.make_node("NonMaxSuppression", nms, ["selected"], center_point_box=1))
g.output.append(helper.make_tensor_value_info("selected", TensorProto.INT64, [None, 3]))
onnx.save(m, "theirs.onnx")
""",
        "returns indices; gathering boxes and classes is left to the caller",
    ),
    "fp16 with float32 io": Peer(
        "onnxruntime.transformers",
        """
import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16
onnx.save(convert_float_to_float16(onnx.load("models/bert-tiny.onnx"), keep_io_types=True), "theirs.onnx")
""",
    ),
    "batch fixed": Peer(
        "onnxruntime.tools",
        "python -m onnxruntime.tools.make_dynamic_shape_fixed models/resnet-tiny.onnx theirs.onnx --dim_param batch "
        "--dim_value 1",
    ),
    "batch dynamic": Peer(
        "onnx",
        """
import onnx
m = onnx.load("fixed.onnx")
for value in [*m.graph.input, *m.graph.output]:
    value.type.tensor_type.shape.dim[0].dim_param = "batch"
onnx.save(m, "theirs.onnx")
""",
        "nodes that compute with the old size are not adapted",
    ),
    "uint8 NHWC input": Peer(
        "onnx",
        """
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
m = onnx.load("models/mobilenet-tiny.onnx")
g = m.graph
old = g.input[0].name
mean, std = np.float32([123.675, 116.28, 103.53]), np.float32([58.395, 57.12, 57.375])
g.initializer.append(numpy_helper.from_array(mean, "mean"))
g.initializer.append(numpy_helper.from_array(std, "std"))
del g.input[:]
g.input.append(helper.make_tensor_value_info("image", TensorProto.UINT8, ["batch", 64, 64, 3]))
new = [
    helper.make_node("Cast", ["image"], ["f"], to=TensorProto.FLOAT),
    helper.make_node("Sub", ["f", "mean"], ["c"]),
    helper.make_node("Div", ["c", "std"], ["n"]),
    helper.make_node("Transpose", ["n"], [old], perm=[0, 3, 1, 2]),
]
nodes = [*new, *g.node]
del g.node[:]
g.node.extend(nodes)
onnx.save(m, "theirs.onnx")
""",
    ),
    "cut the head": Peer(
        "onnx",
        """
from onnx.utils import extract_model
extract_model("models/mobilenet-tiny.onnx", "theirs.onnx", ["pixel_values"], ["view"])
""",
    ),
    "keep only an encoder": Peer(
        "onnx",
        f"""
from onnx.utils import extract_model
extract_model("models/t5-enc-tiny.onnx", "theirs.onnx", ["input_ids", "attention_mask"], ["{T5_LAYER}"])
""",
    ),
    "two models into one": Peer(
        "onnx",
        f"""
import onnx
from onnx.compose import merge_models
a, b = onnx.load("backbone.onnx"), onnx.load("head.onnx")
onnx.save(merge_models(a, b, [("{FLAT}", "{FLAT}")], prefix2="head/"), "theirs.onnx")
""",
    ),
    "weights of a fine-tune": Peer(
        "onnx",
        """
import json
import numpy as np
import onnx
from onnx import numpy_helper
data = open("finetuned.safetensors", "rb").read()
size = int.from_bytes(data[:8], "little")
head, types = json.loads(data[8 : 8 + size]), {"F32": np.float32, "I64": np.int64}
m = onnx.load("models/mobilenet-tiny.onnx")
for tensor in m.graph.initializer:
    entry = head[tensor.name]
    begin, end = (8 + size + place for place in entry["data_offsets"])
    array = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
onnx.save(m, "theirs.onnx")
""",
    ),
    "KV cache": NONE,
    "rename inputs": Peer(
        "onnx",
        """
import onnx
m = onnx.load("models/resnet-tiny.onnx")
m.graph.input[0].name = "image"
for node in m.graph.node:
    node.input[:] = ["image" if name == "pixel_values" else name for name in node.input]
onnx.save(m, "theirs.onnx")
""",
    ),
    "remove an output": Peer(
        "onnx-graphsurgeon",
        """
import onnx
import onnx_graphsurgeon as gs
g = gs.import_onnx(onnx.load("two-outputs.onnx"))
g.outputs = [output for output in g.outputs if output.name != "pooled"]
onnx.save(gs.export_onnx(g.cleanup()), "theirs.onnx")
""",
    ),
    "opset 21": Peer(
        "onnx",
        """
import onnx
from onnx import version_converter
onnx.save(version_converter.convert_version(onnx.load("models/resnet-tiny.onnx"), 21), "theirs.onnx")
""",
    ),
    "downgrade to 13": Peer(
        "onnx",
        """
import onnx
from onnx import version_converter
onnx.save(version_converter.convert_version(onnx.load("models/mobilenet-tiny.onnx"), 13), "theirs.onnx")
""",
    ),
    "int8 without data": Peer(
        "onnxruntime.quantization",
        """
from onnxruntime.quantization import quantize_dynamic
quantize_dynamic("models/mobilenet-tiny.onnx", "theirs.onnx")
""",
        "the loss is not measured",
    ),
    "int8 with images": Peer(
        "onnxruntime.quantization",
        """
from pathlib import Path
import numpy as np
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from PIL import Image
class Reader(CalibrationDataReader):
    def __init__(self):
        self.left = sorted(Path("images").iterdir())
    def get_next(self):
        if not self.left:
            return None
        image = Image.open(self.left.pop()).convert("RGB").resize((64, 64))
        return {"pixel_values": np.float32(image).transpose(2, 0, 1)[None] / 255}
quantize_static("models/mobilenet-tiny.onnx", "theirs.onnx", Reader())
""",
        "the loss is not measured",
    ),
    "int4 weights": Peer(
        "onnxruntime.quantization",
        """
import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
q = MatMulNBitsQuantizer(onnx.load("models/gpt2-tiny.onnx"), block_size=32)
q.process()
q.model.save_model_to_file("theirs.onnx")
""",
        "the loss is not measured",
    ),
    "external weights": Peer(
        "onnx",
        """
import onnx
onnx.save(onnx.load("models/bert-tiny.onnx"), "theirs.onnx", save_as_external_data=True, location="theirs.data")
""",
    ),
    "strip exporter paths": Peer(
        "onnx",
        """
import onnx
m = onnx.load("models/bert-tiny.onnx")
for item in [m.graph, *m.graph.node, *m.graph.input, *m.graph.output, *m.graph.value_info, *m.graph.initializer]:
    item.doc_string = ""
    item.ClearField("metadata_props")
onnx.save(m, "theirs.onnx")
""",
        "functions and subgraphs are left",
    ),
    "what differs": Peer(
        "OnnxSlim", "onnxslim --inspect models/bert-tiny.onnx models/bert-tiny.ts.onnx", "counts of operators"
    ),
    "why not fused": NONE,
    "which step broke it": NONE,
    "histogram of operators": Peer("OnnxSlim", "onnxslim --inspect models/bert-tiny.onnx"),
    "which opsets": NONE,
    "run only one pass": Peer(
        "onnxoptimizer",
        "python -m onnxoptimizer models/resnet-tiny.onnx theirs.onnx -p fuse_bn_into_conv",
    ),
    "CI check": NONE,
    "lock file": NONE,
    "batch over a folder": Peer(
        "onnxsim",
        """
from pathlib import Path
import onnx
from onnxsim import simplify
Path("theirs").mkdir(exist_ok=True)
for path in Path("models").glob("*.onnx"):
    onnx.save(simplify(onnx.load(path))[0], f"theirs/{path.name}")
""",
        "one that crashes ends all",
    ),
    "target OpenVINO": NONE,
    "output for debugging": Peer(
        "onnx",
        f"""
import onnx
m = onnx.load("models/resnet-tiny.onnx")
m.graph.output.append(onnx.ValueInfoProto(name="{FLAT}"))
onnx.save(m, "theirs.onnx")
""",
    ),
    "compare two runtimes": NONE,
    "is it faster (bench)": Peer(
        "onnxruntime",
        """
import time
import numpy as np
import onnxruntime as ort
x = {"pixel_values": np.zeros((1, 3, 224, 224), np.float32)}
for path in ("models/resnet-tiny.onnx", "tidied.onnx"):
    s = ort.InferenceSession(path)
    s.run(None, x)
    begin = time.perf_counter()
    for _ in range(100):
        s.run(None, x)
    print(path, (time.perf_counter() - begin) / 100)
""",
        "no interval, and the second runs on a warm machine",
    ),
    "find the slow part": Peer(
        "onnxruntime",
        """
import collections, json
import numpy as np
import onnxruntime as ort
options = ort.SessionOptions()
options.enable_profiling = True
s = ort.InferenceSession("models/resnet-tiny.onnx", options)
for _ in range(20):
    s.run(None, {"pixel_values": np.zeros((1, 3, 224, 224), np.float32)})
total = collections.Counter()
for event in json.load(open(s.end_profiling())):
    if event.get("cat") == "Node":
        total[event["args"]["op_name"]] += event["dur"]
print(total.most_common())
""",
    ),
    "fix an invalid model": Peer(
        "onnx-graphsurgeon",
        """
import onnx
import onnx_graphsurgeon as gs
onnx.save(gs.export_onnx(gs.import_onnx(onnx.load("broken.onnx")).toposort()), "theirs.onnx")
""",
        "the wrong declared shape stays",
    ),
    "freeze weights listed as inputs": Peer(
        "onnxruntime.tools",
        "python -m onnxruntime.tools.remove_initializer_from_input --input listed.onnx --output theirs.onnx",
    ),
    "set weights": Peer(
        "onnx",
        """
import numpy as np
import onnx
from onnx import numpy_helper
m, arrays = onnx.load("models/mobilenet-tiny.onnx"), np.load("weights.npz")
for tensor in m.graph.initializer:
    tensor.CopyFrom(numpy_helper.from_array(arrays[tensor.name], tensor.name))
onnx.save(m, "theirs.onnx")
""",
    ),
    "replace an operator": Peer(
        "onnx",
        """
import onnx
m = onnx.load("models/resnet-tiny.onnx")
for node in m.graph.node:
    if node.op_type == "Relu":
        node.op_type = "LeakyRelu"
onnx.save(m, "theirs.onnx")
""",
    ),
    "insert Clip": Peer(
        "onnx",
        """
import numpy as np
import onnx
from onnx import helper, numpy_helper
m = onnx.load("models/resnet-tiny.onnx")
for node in m.graph.node:
    node.output[:] = ["unclipped" if name == "logits" else name for name in node.output]
m.graph.initializer.append(numpy_helper.from_array(np.float32(-10), "low"))
m.graph.initializer.append(numpy_helper.from_array(np.float32(10), "high"))
m.graph.node.append(helper.make_node("Clip", ["unclipped", "low", "high"], ["logits"]))
onnx.save(m, "theirs.onnx")
""",
    ),
    "split in pieces": Peer(
        "onnx",
        f"""
from onnx.utils import extract_model
extract_model("models/resnet-tiny.onnx", "theirs.1.onnx", ["pixel_values"], ["{FLAT}"])
extract_model("models/resnet-tiny.onnx", "theirs.2.onnx", ["{FLAT}"], ["logits"])
""",
        "the tensor to cut at has to be found first",
    ),
    "reorder outputs": Peer(
        "onnx",
        """
import onnx
m = onnx.load("two-outputs.onnx")
outputs = sorted(m.graph.output, key=lambda one: ["pooled", "logits"].index(one.name))
del m.graph.output[:]
m.graph.output.extend(outputs)
onnx.save(m, "theirs.onnx")
""",
    ),
}
