"""Models without the metadata of their nodes, for everything that runs a model or infers its shapes.

PyTorch's exporter stores a stack trace with each node, which may be most of the bytes of a skeleton. Each worker call
would send, parse and serialize it again.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4)
def without_metadata(skeleton: bytes) -> bytes:
    """Copy a model without the metadata and doc strings of the nodes of its main graph and functions.

    Subgraphs keep theirs. Returns the same bytes if there is nothing to remove.
    """
    import onnx

    model = onnx.load_model_from_string(skeleton)
    found = False
    for holder in (model.graph, *model.functions):
        for node in holder.node:
            if node.metadata_props or node.doc_string:
                del node.metadata_props[:]
                node.ClearField("doc_string")
                found = True
    if not found:
        return skeleton
    data: bytes = model.SerializeToString()
    return data
