"""Metadata of a model."""

import json
from typing import Any

from surgery import Builder, FilePath, Graph, Parity, UsageError, graph_pass

from ._asked import asked


@graph_pass("set-metadata", parity=Parity.EXACT, changes=("metadata",))
def set_metadata(
    graph: Graph,
    *,
    metadata: dict[str, str | None] | None = None,
    producer: str | None = None,
    producer_version: str | None = None,
    domain: str | None = None,
    version: int | None = None,
    doc: str | None = None,
    labels: list[str] | None = None,
    labels_file: FilePath | None = None,
    labels_key: str = "labels",
    labels_of: str | None = None,
    describe: dict[str, str] | None = None,
) -> None:
    """Set metadata, the producer, a description, class labels, and descriptions of inputs and outputs.

    Right because runtimes ignore these fields. Fields that are not given stay unchanged, and an empty string removes a
    field. Class labels are stored in one metadata entry, as a JSON list in the order of the classes.

    Example:
        # options: {metadata: {task: classification}, labels: [cat, dog], labels_of: y}
        g (float[N,2] x) => (float[N,2] y) { y = Softmax(x) }

    Options:
        metadata: entries by key; null removes an entry.
        producer: the tool that made the model.
        producer_version: its version.
        domain: the namespace of the model, as a reversed domain name.
        version: the version of the model.
        doc: the description of the model.
        labels: the names of the classes.
        labels_file: a file with the names, one on each line, or as JSON: a list, or a mapping from numbers to names.
        labels_key: the key of the entry for the labels.
        labels_of: the output with the classes along its second axis, or its only one; there must be as many labels.
        describe: descriptions of inputs and outputs, by their names.
    """
    names = _labels(labels, labels_file)
    if labels_of is not None:
        _check_count(graph, labels_of, names)
    entries = {**(metadata or {}), **({} if names is None else {labels_key: json.dumps(names, ensure_ascii=False)})}
    for key, text in entries.items():
        if text is None and key not in graph.metadata:
            raise UsageError(f"the model has no metadata '{key}' to remove")
    fields = {
        "producer_name": producer,
        "producer_version": producer_version,
        "domain": domain,
        "model_version": version,
        "doc_string": doc,
    }
    with asked(graph) as new:
        for key, text in entries.items():
            if graph.metadata.get(key) != text:
                new.set_metadata(key, text)
        _set_fields(graph, fields, new)
        ports = [*graph.inputs(), *graph.outputs()]
        for name, text in (describe or {}).items():
            (value,) = graph.tensors([name], among=ports, kind="input or output of the model")[:1]
            if (value.ir.doc_string or "") != text:
                new.describe(value, text or None)


def _set_fields(graph: Graph, fields: dict[Any, str | int | None], new: Builder) -> None:
    for name, content in fields.items():
        if content is not None and (getattr(graph.ir, name) or type(content)()) != content:
            new.set_model_field(name, content or None)


def _check_count(graph: Graph, output: str, names: list[str] | None) -> None:
    """Raise UsageError if the known number of classes of an output differs from the number of labels."""
    if names is None:
        raise UsageError("labels_of needs labels", todo="give labels or labels_file")
    value = graph.tensors([output], among=graph.outputs(), kind="output of the model")[0]
    shape = value.shape
    classes = shape[min(1, len(shape) - 1)] if shape else None
    if isinstance(classes, int) and classes != len(names):
        raise UsageError(f"there are {len(names)} labels, and the output '{output}' has {classes} classes")


def _labels(labels: list[str] | None, file: FilePath | None) -> list[str] | None:
    """Return the names of the classes; None if none are given."""
    if labels is not None and file is not None:
        raise UsageError("give labels or labels_file, not both")
    if file is None:
        return labels
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text) if file.suffix == ".json" else text.splitlines()
    except OSError as error:
        raise UsageError(f"the labels cannot be read: {error.strerror or error}", where=str(file)) from error
    except ValueError as error:
        raise UsageError(f"the labels cannot be read: {error}", where=str(file)) from error
    if isinstance(found, dict) and {*found} == {str(number) for number in range(len(found))}:
        found = [found[str(number)] for number in range(len(found))]
    if not isinstance(found, list) or not found or not all(isinstance(item, str) for item in found):
        raise UsageError("this is neither a list of labels nor a mapping from 0, 1, 2 ... to them", where=str(file))
    return found
