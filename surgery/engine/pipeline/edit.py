"""Edits by hand: the body of a `with` statement has the rules of the body of a pass, and is judged like one.

The body edits a graph of its own, site by site. What it made becomes the steps of a recipe: one for the edits that keep
the results, and one for each block of intended ones. The pipeline runs that recipe on the model as it was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from surgery.base.errors import ExpectationError, PassError, UsageError
from surgery.base.promises import Change, Parity
from surgery.base.views import view
from surgery.engine.bridges import by_hand
from surgery.engine.bridges.by_hand import Operand, Tensor, Which, selector
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.committed import CommittedModel
from surgery.engine.pipeline.edit_part import NAME, EditPart
from surgery.engine.pipeline.reference_start import repaired
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe.schema import Recipe
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.analysis import attributes as attributes_of
from surgery.model.graph import literals
from surgery.model.graph.builder import Builder
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Value
from surgery.model.targets import STANDARD
from surgery.verification.verdict import pair

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result
    from surgery.model.storage.loading import Model

_DIFFERS = "if that is intended, edit within 'with g.intended():', or pass intended=True to surgery.edit"
_CONNECTING = "replace, set_input or add_output"
_PLAIN = (int, float, str, list)

Dim = int | str | None
"""One dim: a number, a name, or None for one that stays as it is."""


class EditedGraph(Graph):
    """A model that is edited by hand: a `Graph` with the common edits as methods, for the body of a `with` statement.

    Nodes are given as `Node`, by name, glob or mapping (`{"op": "Conv"}`), or as a list of these; tensors as `Value` or
    by name. Every edit applies at once, as one site or as those of a pass: boundaries hold, names stay unique, nodes
    and weights that nothing reads any more are removed. An edit that cannot be made raises `UsageError`, which names
    the place and the remedy, and the model then is as before that edit.
    """

    def __init__(
        self, stored: storage.StoredModel, recipe: Recipe, *, output: str | Path | None, force: bool, intended: bool
    ) -> None:
        model = CommittedModel(repaired(stored), recipe.profile)
        super().__init__(
            model.graph.ir,
            weights=stored.weights,
            pass_name=NAME,
            reserved=model.graph.reserved,
            target=model.target,
        )
        self.result: Result | None = None
        """The result of the run, with the verdict on each part; None until the block has ended."""
        self._read, self._recipe, self._output, self._force = stored, recipe, output, force
        self._is_intended = intended
        self._last = model.state.data
        self._parts: list[EditPart] = []
        self._changes: set[Change] = set()
        self._pending: Builder | None = None
        self._is_within_pass = self._is_open = False

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        name = "a model" if self._read.path is None else f"'{self._read.path.name}'"
        outcome = "" if self.result is None else f", {'ok' if self.result.ok else 'not ok'}"
        return f"<EditedGraph of {name}: {len(self.nodes())} nodes{outcome}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the outcome, or before that the model as it is."""
        if self.result is not None:
            return self.result._repr_html_()
        counts = {f"{home}::{op}" if home else op: len(same) for (home, op), same in self.index.items() if same}
        return view("model")(
            repr(self).strip("<>"),
            nodes=len(self.nodes()),
            inputs=[value.name for value in self.inputs()],
            outputs=[value.name for value in self.outputs()],
            opsets=[(domain or "ai.onnx", version) for domain, version in self.ir.opset_imports.items()],
            ops=dict(sorted(counts.items(), key=lambda pair: -pair[1])),
        )

    # The block

    def __enter__(self) -> EditedGraph:
        """Begin to edit."""
        if self._is_open or self.result is not None:
            raise UsageError("this edit has begun already", todo="call surgery.edit again")
        self._is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Judge the edits, and write the model; after an exception, leave everything as it was."""
        try:
            if kind is None:
                self._end_part()
                self._conclude()
        finally:
            self._is_open = False

    @contextmanager
    def intended(self) -> Iterator[EditedGraph]:
        """Declare that the edits in a block change the results on purpose: the model is checked and run, not compared.

        Its outputs must be finite where those before the block are. Edits after the block are compared with the model
        at its end, and those before it with the original.
        """
        self._end_part()
        before, self._is_intended = self._is_intended, True
        try:
            yield self
        except BaseException:
            self._pending = None
            raise
        finally:
            try:
                self._end_part()
            finally:
                self._is_intended = before

    def _end_part(self) -> None:
        """Close the part of the body that ends here, if it changed anything."""
        self._require_open()
        if self._pending is not None:
            made = ", ".join(node.op for node in self._pending.edits.nodes) or "constants"
            raise UsageError(f"nothing reads what was added: {made}", todo=f"connect them by {_CONNECTING}")
        try:
            self.finish(whole=True)
        except PassError as error:
            raise UsageError(error.what.replace(f"pass '{NAME}' created", "the edits made"), todo=error.todo) from None
        assert self.weights is not None
        proto = storage.proto_from_ir(self.ir, self.weights)
        data = proto.SerializeToString(deterministic=True)
        if data != self._last:
            promise = Parity.INTENDED if self._is_intended else Parity.CLOSE
            records = tuple(self.sites), dict(self.renamed), tuple(self.accounts)
            self._parts.append(EditPart(proto, promise, frozenset(self._changes), *records))
        self._last = data
        self._changes = set()
        self.begin(NAME)

    def _conclude(self) -> None:
        """Run the parts as steps, which verifies them, and write the model."""
        recipe = replace(self._recipe, steps=tuple(part.step() for part in self._parts))
        options = RunOptions(contained=False)
        self.result = runner.apply(self._read, recipe, output=self._output, force=self._force, options=options)
        if not self.result.ok:
            failed = self.result.failure
            why = failed.message if failed is not None else self.result.unverifiable
            tried = {part.promise for part in self._parts[: len(self.result.steps)][-1:]}
            is_different = failed is not None and failed.verdict is not None and failed.verdict.is_different
            todo = _DIFFERS if is_different and Parity.INTENDED not in tried else None
            where = None if self._read.path is None else str(self._read.path)
            raise ExpectationError(f"the edited model was not accepted: {why}", where=where, todo=todo)

    def _require_open(self) -> None:
        if not self._is_open:
            state = "ended" if self.result is not None else "not begun"
            raise UsageError(f"the edit has {state}", todo="edit within 'with surgery.edit(...) as g:'")

    @contextmanager
    def site(self, anchor: Node | None = None) -> Iterator[Builder]:
        """Open a site, as in a pass: its edits apply together when the block ends.

        Unlike in a pass, a refusal raises `UsageError`.
        """
        self._require_open()
        before = len(self.refusals)
        with super().site(anchor) as new:
            yield new
        if not self._is_within_pass:
            for refused in self.refusals[before:]:
                raise UsageError(refused.reason, where=refused.anchor or None)

    def _commit(self, builder: Builder) -> None:
        super()._commit(builder)
        if not self._is_within_pass and not builder.is_idle:
            self._changes |= builder.edits.signature_changes()

    @contextmanager
    def _connecting(self) -> Iterator[Builder]:
        """Open a site that also has the nodes added since the last one."""
        pending, self._pending = self._pending, None
        with self.site() as new:
            if pending is not None:
                by_hand.forget_presumed(pending)
                new.edits = pending.edits
            yield new

    def run(self, name: str, /, **options: Any) -> None:
        """Run a pass on the model as it is now, such as `g.run("fuse-conv-bn")` or `g.run("extract", outputs="y")`.

        Its result is judged with the other edits. For a pass that the options say is intended, edit within
        `intended()`. Raises UsageError if the pass or an option does not exist, or if it loses accuracy.
        """
        self._run(name, options)

    def _run(self, name: str, options: Mapping[str, Any]) -> None:
        self._require_open()
        if self._pending is not None:
            todo = f"connect the new nodes first, by {_CONNECTING}"
            raise UsageError(f"'{name}' cannot see what was only added", todo=todo)
        declared = catalog.find(name)
        assert self.weights is not None
        before = storage.proto_from_ir(self.ir, self.weights)
        records = list(self.sites), dict(self.renamed), list(self.accounts)
        self._is_within_pass = True
        try:
            by_hand.run_on(self, declared, options)
        except BaseException:
            if len(self.sites) > len(records[0]):  # of a pass with several sites, some were applied
                self.adopt(storage.ir_from_proto(before, self.weights))
                self.sites, self.renamed, self.accounts = records
            raise
        finally:
            self._is_within_pass = False
        self._changes |= declared.changes

    # Finding

    def select(self, which: Any, /) -> list[Node]:
        """List the nodes of a name, a glob, a mapping such as {"op": "Conv"}, or a list of these.

        Raises UsageError if there are none.
        """
        return super().select(which if hasattr(which, "nodes") else selector(which))

    def node(self, which: Which) -> Node:
        """Return the only node of a name, a glob or a mapping; raise UsageError if there are none, or several."""
        return by_hand.only(self.select(which))

    def tensor(self, which: Tensor | Node) -> Value:
        """Return the tensor of the main graph with a name; raise UsageError if there is none."""
        if isinstance(which, Value):
            by_hand.require_known(self, which, self._pending)
            return which
        return by_hand.tensor_named(self, which)

    # Nodes

    def add(
        self, op: str, /, *inputs: Operand, name: str | None = None, before: Which | None = None, **attributes: Any
    ) -> Value:
        """Add a node, and return its first output; connect it by `replace`, `set_input`, `add_output` or another node.

        `op` may carry a domain, "com.microsoft::Gelu". Inputs are tensors or their names, numbers, which get the type
        that the operator takes there, arrays, or None for an omitted one. `name` is a suggestion, which is made unique.
        It is added to the graph of its inputs, or `before` a node. Raises UsageError for an operator, inputs or
        attributes that do not exist at the opset of the model.
        """
        return self.add_many(op, *inputs, outputs=1, name=name, before=before, **attributes)[0]

    def add_many(
        self,
        op: str,
        /,
        *inputs: Operand,
        outputs: int,
        name: str | None = None,
        before: Which | None = None,
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """Add a node with several outputs, as `add` does, and return all of them."""
        self._require_open()
        self._pending = self._pending or Builder(self, None)
        known = [self.tensor(item) for item in inputs if isinstance(item, Value | str)]
        anchor = self.node(before) if before is not None else by_hand.inner_anchor(self, known, self._pending)
        new = self._pending if anchor is None else self._pending.at(anchor)
        given = by_hand.operands(self, op, inputs, self.tensor, new.constant)
        typed = self._typed(op, len(given), outputs, attributes)
        made = new.nodes(op, *given, outputs=outputs, name=name, attributes=typed)
        by_hand.presume_types(op, given, made, typed)
        return made

    def _typed(self, op: str, inputs: int, outputs: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check the form of a new node, and return its attributes in the types that the operator declares."""
        near = next(iter(self.main_nodes()), None)
        if near is None:
            return dict(given)
        try:
            attributes_of.require_form(near, op, inputs, outputs, given)
            return {
                name: attributes_of.typed_attribute(near, name, item, op=op) if isinstance(item, _PLAIN) else item
                for name, item in given.items()
            }
        except UsageError as error:
            raise UsageError(error.what, where=f"the new {op}", todo=error.todo) from None

    def constant(self, array: Operand, name: str = "constant") -> Value:
        """Add a weight, and return it: an array with its type, or numbers, of which whole ones become int64.

        `name` is a suggestion, which is made unique. It is only kept if something reads it.
        """
        self._require_open()
        self._pending = self._pending or Builder(self, None)
        return self._pending.constant(by_hand.constant(array), name)

    def replace(self, old: Tensor, new: Tensor, /) -> None:
        """Have everything that reads a tensor read another one instead; nodes added for this keep reading the old one.

        An output of the model keeps its name. Dependent types and dims are inferred anew, and nodes that nothing
        needs any more are removed.
        """
        before, after = self.tensor(old), self.tensor(new)
        with self._connecting() as site:
            site.outdates(before)
            by_hand.place_of(after, site).replace(before, after)

    def set_input(self, node: Which, index: int, tensor: Tensor | None) -> None:
        """Connect an input of a node, counted from 0, to another tensor, or to none."""
        target, value = self.node(node), None if tensor is None else self.tensor(tensor)
        if index < 0 or index > len(target.inputs):
            raise UsageError(f"'{target.label}' has {len(target.inputs)} inputs, counted from 0, and no input {index}")
        with self._connecting() as new:
            for output in target.outputs:
                new.outdates(output)
            new.set_input(target, index, value)

    def remove(self, nodes: Which, /, *, connect: Mapping[int, int] | None = None) -> None:
        """Remove nodes: what read a removed node reads its input instead, as in the pass `remove-nodes`.

        `connect` says which input replaces which output, both counted from 0. Raises UsageError if none fits.
        """
        more = {} if connect is None else {"connect": dict(connect)}
        self._run("remove-nodes", {"nodes": selector(nodes), **more})

    def insert_after(self, where: Tensor | Node, op: str, *operands: Operand, **attributes: Any) -> Value:
        """Insert an operator after a tensor, or after the first output of a node, and return its result.

        Everything that read the tensor reads the result; an output of the model keeps its name. `operands` are the
        other inputs, as in `add`. See the pass `insert-after` for many places.
        """
        value = where.outputs[0] if isinstance(where, Node) else self.tensor(where)
        made = self.add(op, value, *operands, **attributes)
        self.replace(value, made)
        return made

    def insert_before(self, node: Which, op: str, *operands: Operand, index: int = 0, **attributes: Any) -> Value:
        """Insert an operator before one input of a node, counted from 0: only that node reads its result."""
        target = self.node(node)
        value = target.input(index)
        if value is None:
            raise UsageError(f"'{target.label}' has {len(target.inputs)} inputs, counted from 0, and no input {index}")
        made = self.add(op, value, *operands, before=target, **attributes)
        self.set_input(target, index, made)
        return made

    def replace_op(
        self, nodes: Which, op: str, *, inputs: Sequence[int | str | None] | None = None, **attributes: Any
    ) -> None:
        """Change the operator of nodes, as the pass `replace-op` does; an attribute of None is dropped.

        `inputs` are the inputs of the new operator: numbers of old ones, names of tensors, or None.
        """
        more = {} if inputs is None else {"inputs": list(inputs)}
        self._run("replace-op", {"nodes": selector(nodes), "op": op, "attributes": attributes, **more})

    def set_attribute(self, nodes: Which, /, **attributes: Any) -> None:
        """Set attributes of nodes, of the types that the operator declares; None removes one."""
        for name, value in attributes.items():
            wish = {"remove": True} if value is None else {"value": value}
            self._run("set-attribute", {"nodes": selector(nodes), "name": name, **wish})

    # Names and weights

    def rename(self, names: Mapping[str, str], *, kind: Literal["tensors", "nodes", "dims"] | None = None) -> None:
        """Rename whatever has these names: tensors, inputs, outputs, nodes, dims; all at once, so that they can swap.

        `kind` limits it. Old names may be globs, whose wildcards stand for the same letters in the new name.
        """
        self._run("rename", by_hand.new_names(self, names) if kind is None else {kind: dict(names)})

    def set_weight(
        self, name: Tensor, array: Operand, *, allow: Sequence[Literal["dtype", "dims"]] = (), dtype: str | None = None
    ) -> None:
        """Set the elements of a weight or a Constant; one number fills it. The type of the weight stays.

        `allow` lists what may differ: its "dims", or with a `dtype` such as "float16" its "dtype".
        """
        target = name.name if isinstance(name, Value) else name
        more = {"dtype": dtype} if dtype is not None else {}
        self._run("set-initializer", {"name": target, "value": np.asarray(array), "allow": list(allow), **more})

    # Inputs and outputs

    def set_dims(self, sizes: Mapping[str, Dim | Sequence[Dim]]) -> None:
        """Fix, free or name dims, as the pass `set-dims` does: {"batch": 1}, {"image": [1, 3, None, None]}.

        A list has the dims of an input or output; None leaves one as it is.
        """
        ports = {name: list(size) for name, size in sizes.items() if isinstance(size, list | tuple)}
        dims = {name: size for name, size in sizes.items() if name not in ports}
        self._run("set-dims", {**({"dims": dims} if dims else {}), **({"ports": ports} if ports else {})})

    def set_dtype(self, types: Mapping[str, str]) -> None:
        """Change the element types of inputs and outputs, {"ids": "int32"}; a Cast keeps the types inside."""
        outputs = {name: kind for name, kind in types.items() if name in {value.name for value in self.outputs()}}
        inputs = {name: kind for name, kind in types.items() if name not in outputs}
        self._run("set-dtype", {**({"inputs": inputs} if inputs else {}), **({"outputs": outputs} if outputs else {})})

    def add_input(self, name: str, dtype: str, dims: Sequence[Dim] | None) -> Value:
        """Add an input of the model, and return it; `dims` is None if the rank is unknown.

        It is compared with the value of that name in the model before, if there is one; else edit within `intended()`.
        """
        with self.site() as new:
            return new.add_input(name, literals.data_type(dtype), dims)

    def remove_input(self, name: str, value: Operand = None) -> None:
        """Remove an input of the model; inside, `value` takes its place: a number that fills it, or an array."""
        self._run("remove-inputs", {"inputs": [name] if value is None else {name: np.asarray(value).tolist()}})

    def add_output(self, tensor: Tensor, name: str | None = None) -> Value:
        """Make a tensor an output of the model, under its name or another, after the other outputs; return it."""
        value = self.tensor(tensor)
        with self._connecting() as new:
            return new.add_output(value, name)

    def remove_output(self, *names: str) -> None:
        """Remove outputs of the model, with the nodes that only they need; one output has to stay."""
        self._run("remove-outputs", {"outputs": list(names)})


def edit(
    model: Model,
    *,
    output: str | Path | None = None,
    force: bool = False,
    intended: bool = False,
    inputs: pair.Given = None,
    target: str | Path = STANDARD.name,
) -> EditedGraph:
    """Open a model for edits by hand, which are verified, and written to `output`, when the block ends.

        with surgery.edit("model.onnx", output="edited.onnx") as g:
            g.rename({"pixel_values": "image"})
            g.set_dims({"batch": 1})

    The model is a path, a URL, an onnx.ModelProto, an onnx_ir.Model, or what `surgery.load` returns; it never changes.
    Results must stay the same but for rounding, unless they are `intended` to change, as a whole or in blocks
    `with g.intended():`. `inputs` are sets of inputs to compare on, as in `surgery.verify`. `target` is the runtime
    that the model is made for. After the block, `g.result` is the `Result`, which can also save the model.

    Raises ModelFileError if the model cannot be read, UsageError for an edit that cannot be made, and OutputError if
    `output` exists and is not to be replaced by `force`. Raises ExpectationError at the end of the block if the edited
    model is invalid or differs; then, as after any exception in the block, nothing is written.
    """
    if output is not None:
        storage.check_target(output, force=force)
    recipe = Recipe(NAME, inputs=pair.spec_of(inputs), target=str(target))
    return EditedGraph(storage.opened(model), recipe, output=output, force=force, intended=intended)
