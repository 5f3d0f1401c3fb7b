"""Postprocessing of results, embedded in the model."""

from typing import Literal

from surgery import Graph, Parity, UsageError, Value, graph_pass

from ._asked import asked
from ._ports import only
from ._scores import Scores


@graph_pass("embed-postprocessing", parity=Parity.CLOSE, changes=("outputs", "types", "dims"))
def embed_postprocessing(
    graph: Graph,
    *,
    output: str | None = None,
    activation: Literal["softmax", "sigmoid"] | None = None,
    scale: float | None = None,
    clip: tuple[float, float] | None = None,
    argmax: bool = False,
    top_k: int | None = None,
    axis: int = -1,
) -> None:
    """Add postprocessing to outputs: probabilities, classes, top-k, pixels.

    The steps are applied in this order: activation, scale, clip, and then argmax or top-k along the axis. The output
    keeps its name; the indices of top-k are a new output after it, `<name>_indices`.

    Right by the definition of these ONNX operators. Among equal values, the first counts.

    Options:
        output: the output of the model; optional if there is only one.
        activation: softmax along the axis, or sigmoid.
        scale: a factor, such as 255 for pixels.
        clip: the minimum and the maximum.
        argmax: whether to return the index of the largest value instead of the values.
        top_k: the number of largest values to return, in descending order, with their indices.
        axis: the axis of the classes; may be negative.

    Example:
        # options: {activation: softmax, top_k: 2}
        g (float[N,5] x) => (float[N,5] y)
        {
            y = Relu(x)
        }
    """
    port = only(graph, output, graph.outputs(), "output")
    scores = Scores(port, activation, scale, clip, argmax, top_k, _place(port, axis))
    scores.check()
    name, indices = port.name, f"{port.name}_indices"
    if top_k is not None and not graph.is_free(indices):
        raise UsageError(f"the name '{indices}' is taken", todo="rename what has it")
    with asked(graph) as new:
        made = scores.build(new)
        new.drop_output(port)
        for value, called in zip(made, (name, indices)):
            new.add_output(value, called)
        # The relation under the old name comes last: until then, this name refers to the old output.
        for text, called in [*zip(scores.told(), (name, indices))][::-1]:
            new.relate_output(called, text, scores=port, **scores.constants())
        outputs = [made[0] if value == port else value for value in graph.outputs()]
        if len(made) > 1:
            outputs.insert(outputs.index(made[0]) + 1, made[1])
        new.order_ports(outputs=outputs)


def _place(port: Value, axis: int) -> int:
    """Return the axis counted from the first one; UsageError if it is unknown or out of range."""
    if port.dtype is None:
        raise UsageError(f"the output '{port.name}' is not a tensor")
    if port.rank is None:
        raise UsageError(f"the rank of '{port.name}' is not known", todo="run infer-shapes, or declare its shape")
    if not -port.rank <= axis < port.rank:
        raise UsageError(f"'{port.name}' has {port.rank} dims, and no axis {axis}")
    return axis % port.rank
