"""The fusions for transformers that ship with ONNX Runtime."""

from typing import Literal

from surgery import Graph, Parity, graph_pass, run_tool

ModelType = Literal[
    "bart",
    "bert",
    "bert_keras",
    "bert_tf",
    "clip",
    "conformer",
    "gpt2",
    "gpt2_tf",
    "gpt_neox",
    "mmdit",
    "phi",
    "sam2",
    "swin",
    "t5",
    "tnlr",
    "unet",
    "vae",
    "vit",
]


@graph_pass("ort-transformers", parity=Parity.CLOSE, requires="onnxruntime")
def ort_transformers(graph: Graph, *, model_type: ModelType = "bert", num_heads: int = 0, hidden_size: int = 0) -> None:
    """Run the Python fusions of onnxruntime.transformers: attention, layer normalization, Gelu, embeddings, and more.

    They create operators of com.microsoft, which only ONNX Runtime has. Their patterns match the graphs of specific
    exporters and rarely match others. The runtime's own optimizations are not included; use the pass `ort`.

    Guarded because they trust the given numbers: with `num_heads` 0 they guess, and an attention with a wrong number of
    heads runs with wrong results. FastGelu and SkipLayerNormalization round differently from what they replace. Weights
    that are concatenated for an attention are memory-mapped, and returned in full.

    Example:
        g (float[N,4] x) => (float[N,4] y)
        <float[1] root = {1.4142135}, float[1] one = {1}, float[1] half = {0.5}>
        {
            a = Div(x, root)
            b = Erf(a)
            c = Add(b, one)
            d = Mul(x, c)
            y = Mul(d, half)
        }

    Options:
        model_type: the architecture, as onnxruntime.transformers calls it.
        num_heads: the attention heads; 0 lets the tool guess, which works for bert.
        hidden_size: the size of the hidden state; 0 lets the tool guess.
    """
    run_tool(graph, "ort-transformers", model_type=model_type, num_heads=num_heads, hidden_size=hidden_size)
