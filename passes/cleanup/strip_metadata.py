"""Remove what describes a model and computes nothing."""

from surgery import Graph, Parity, graph_pass, strip_descriptions


@graph_pass("strip-metadata", parity=Parity.EXACT, changes=("metadata",))
def strip_metadata(
    graph: Graph,
    *,
    keep: list[str] | str | None = None,
    docs: bool = True,
    producer: bool = True,
    node_names: bool = False,
    provenance: bool = False,
) -> None:
    """Remove exporter stack traces, file paths, doc strings, other metadata and the name of the exporter.

    Exporters record the module and the lines of code that each node comes from: more than half of a small file, with
    the folders of the machine that exported it. They are removed from the model, its graphs, functions, nodes,
    attributes, tensors, inputs, outputs and declarations, at any depth. Right because operators do not read them:
    outputs are bit-identical. Quantization annotations and training information stay, because tools compute with them.

    Programs may read entries of the model, such as class names: list these in `keep`. `ort_config` and `layer_ann`
    always stay, because ONNX Runtime reads options and devices of nodes from them. `surgery inspect` shows the bytes
    that each key takes. Names of tensors, dims, functions and of the graph stay as well; `rename` changes them.

    Options:
        keep: keys of metadata to keep, or globs; a key that the model does not have is an error, a glob is not.
        docs: whether to remove doc strings.
        producer: whether to remove the name and the version of the exporter.
        node_names: whether to remove the names of nodes, which often repeat the names of modules.
        provenance: whether to remove also what surgery recorded: the lineage of nodes and constants, by how much
            constants grew, and the provenance statement, of which `apply --no-provenance` writes no new one.
    """
    kept = [keep] if isinstance(keep, str) else keep or []
    strip_descriptions(graph, keep=kept, docs=docs, producer=producer, node_names=node_names, provenance=provenance)
