"""The commands that edit a model by one pass: the arguments of each, and the options of the pass that these mean.

Each is another form of `surgery run PASS MODEL --set OPTION=VALUE`, and is run, verified, reported and written like it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from surgery.base.errors import UsageError
from surgery.interface.command_line import _formats, _parsing, _places

_AXIS = re.compile(r"(.+)\[(\d+)\]")
"""One dim of an input or output, such as `image[0]`."""

_NEGATIVE = re.compile(r"-\.?\d.*")
"""What is a value and no option although it begins with `-`: `--operands -1,1`."""

Chosen = tuple[str, dict[str, Any]]
"""The name of a pass and its options."""


@dataclass(frozen=True)
class Argument:
    """An argument of a command: `names` as argparse has them, and its other properties."""

    names: tuple[str, ...]
    metavar: str
    help: str
    many: bool = False
    """Whether an option may be repeated, or an argument without a name may occur any number of times."""
    optional: bool = False
    """Whether an argument without a name may be left out."""
    dest: str | None = None
    """The attribute of an option, if its name cannot be one."""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add it to a parser."""
        if self.names[0].startswith("-"):
            more: dict[str, Any] = {"action": "append", "default": []} if self.many else {}
            more |= {"dest": self.dest} if self.dest else {}
            repeated = "; may be repeated" if self.many else ""
            parser.add_argument(*self.names, metavar=self.metavar, help=f"{self.help}{repeated}", **more)
            return
        times = "*" if self.many else "?" if self.optional else None
        parser.add_argument(*self.names, metavar=self.metavar, nargs=times, help=self.help)


@dataclass(frozen=True)
class Edit:
    """A command of the command line; as modules of commands do, it has FORMATS, `add_arguments` and `main`."""

    about: str
    """Its description, which begins with a summary in one line."""
    arguments: tuple[Argument, ...]
    read: Callable[[argparse.Namespace], Chosen]
    """Returns the pass and its options; UsageError for arguments that mean none."""
    sets: str = "--inputs"
    """The name of the option for input sets."""
    rewrite: Callable[[_parsing.Parser, list[str]], list[str]] | None = None
    """Turns arguments with unknown options into others."""
    FORMATS: tuple[str, ...] = _formats.REPORTS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        from surgery.interface.command_line import _settings
        from surgery.interface.commands import run

        parser._negative_number_matcher = _NEGATIVE
        parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
        for one in self.arguments:
            one.add(parser)
        _settings.add_argument(parser)
        run.add_run_arguments(parser, self.sets)
        if self.rewrite is not None and isinstance(parser, _parsing.Parser):
            parser.rewrite = partial(self.rewrite, parser)

    def main(self, arguments: argparse.Namespace) -> int:
        """Run the pass."""
        from surgery.interface.command_line import _plugins, _settings, _verification
        from surgery.interface.commands import run

        _verification.start()
        from surgery.engine.registry.catalog import catalog

        _plugins.load(arguments)
        name, options = self.read(arguments)
        more = _settings.read(catalog.find(name), arguments.settings)
        return run.execute(arguments, name, {**options, **more})


def _pair(text: str, form: str, example: str) -> tuple[str, str]:
    """Return the two sides of the last `=`."""
    name, equals, value = text.rpartition("=")
    if not (equals and name.strip() and value.strip()):
        raise UsageError(f"'{text}' is not of the form {form}", todo=f"write it like {example}")
    return name.strip(), value.strip()


def _names(texts: Sequence[str], flag: str) -> list[str]:
    """Return the names in texts with commas."""
    found = [part.strip() for text in texts for part in text.split(",")]
    if not all(found):
        raise UsageError(f"{flag}: a name is empty", todo=f"pass {flag} NAME,NAME")
    return found


def _nodes(arguments: argparse.Namespace) -> Any:
    """Return the selector of nodes given by names, globs or mappings, and by --op; None for none."""
    from surgery.interface.command_line import _settings

    found = [_settings.value(text) if text.startswith("{") else text for text in arguments.nodes]
    if arguments.op:
        ops = _names(arguments.op, "--op")
        found.append({"op": ops[0] if len(ops) == 1 else ops})
    return found[0] if len(found) == 1 else found or None


def _attributes(arguments: argparse.Namespace) -> dict[str, Any]:
    from surgery.interface.command_line import _settings

    pairs = (text.partition("=") for text in arguments.attribute)
    found = {}
    for name, equals, value in pairs:
        if not (name and equals):
            raise UsageError(f"--attribute {name}: this is not NAME=VALUE", todo="pass --attribute alpha=0.1")
        found[name] = _settings.value(value)
    return {"attributes": found} if found else {}


def _rename(arguments: argparse.Namespace) -> Chosen:
    from surgery.features.inspection import name_kinds

    given = dict(_pair(text, "OLD=NEW", "pixel_values=image") for text in arguments.names)
    return "rename", name_kinds.by_kind(arguments.model, given, arguments.kind)


def _set_dims(arguments: argparse.Namespace) -> Chosen:
    from surgery.engine.yaml.yaml_nodes import resolve
    from surgery.features.inspection import name_kinds

    dims: dict[str, Any] = {}
    ports: dict[str, Any] = {}
    for text in arguments.sizes:
        # `x:1,3,224,224` is how other tools write the shape of an input.
        colon = "=" not in text and ":" in text
        name, value = _pair(text[::-1].replace(":", "=", 1)[::-1] if colon else text, "DIM=SIZE", "batch=1")
        axis = _AXIS.fullmatch(name)
        if axis is not None:
            if axis[1] not in ports:
                ports[axis[1]] = [None] * name_kinds.rank(arguments.model, axis[1])
            own = ports[axis[1]]
            own[name_kinds.axis(axis[1], int(axis[2]), len(own))] = resolve(value)
        elif "," in value or value.startswith("["):
            sizes = [part.strip() for part in value.strip("[]").split(",")]
            ports[name] = [None if size in ("", "?") else resolve(size) for size in sizes]
        else:
            dims[name] = resolve(value)
    batch = {} if arguments.batch_size is None else {"rebatch": resolve(arguments.batch_size)}
    found = {**({"dims": dims} if dims else {}), **({"ports": ports} if ports else {}), **batch}
    if not found and not arguments.settings:
        raise UsageError("no size is given", todo="write it like batch=1, or image=1,3,224,224 for a whole input")
    return "set-dims", found


def _insert(arguments: argparse.Namespace) -> Chosen:
    from surgery.interface.command_line import _settings

    options: dict[str, Any] = {"op": arguments.operator, **_attributes(arguments)}
    if arguments.operands is not None:
        operands = arguments.operands
        options["operands"] = _settings.value(operands if operands.startswith("[") else f"[{operands}]")
    places = {name: getattr(arguments, name) for name in ("after", "after_node", "before")}
    given = {name: value for name, value in places.items() if value is not None}
    if len(given) != 1:
        raise UsageError(
            "no place is given" if not given else "several places are given",
            todo="pass one of --after TENSOR, --after-node NODE and --before NODE",
        )
    [(place, where)] = given.items()
    if place == "after":
        return "insert-after", {"tensors": _names([where], "--after"), **options}
    selected = _settings.value(where) if where.startswith(("{", "[")) else where
    return ("insert-before" if place == "before" else "insert-after"), {"nodes": selected, **options}


def _with_operands(parser: _parsing.Parser, texts: list[str]) -> list[str]:
    """Turn options that are called like inputs and attributes of the operator, as `--min -1`, into these."""
    import onnx

    from surgery.interface.command_line import _settings

    op = next((text for text in texts if not text.startswith("-") and onnx.defs.has(text)), None)
    if op is None or any(text.startswith("--operands") for text in texts):
        return texts
    schema = onnx.defs.get_schema(op)
    inputs = [one.name for one in schema.inputs[1:]]
    rest, found = _settings.free_options(
        texts, parser.is_unknown, lambda name: name in inputs or name in schema.attributes
    )
    given = {name: value for name, value in found if name in inputs}
    last = max((inputs.index(name) for name in given), default=-1)
    operands = [f"--operands={','.join(given.get(name, 'null') for name in inputs[: last + 1])}"] if given else []
    return [*rest, *operands, *(f"--attribute={name}={value}" for name, value in found if name not in inputs)]


def _with_attributes(parser: _parsing.Parser, texts: list[str]) -> list[str]:
    """Turn options that are called like attributes of the operators, as `--alpha 0.1`, into attributes."""
    import onnx

    from surgery.interface.command_line import _settings

    ops = [op for op in (text.removeprefix("--with=") for text in texts) if onnx.defs.has(op)]
    known = {name for op in ops for name in onnx.defs.get_schema(op).attributes}
    rest, found = _settings.free_options(texts, parser.is_unknown, known.__contains__)
    return [*rest, *(f"--attribute={name}={value}" for name, value in found)]


def _remove(arguments: argparse.Namespace) -> Chosen:
    from surgery.interface.command_line import _settings

    nodes = _nodes(arguments)
    kinds = [nodes is not None, bool(arguments.starts), bool(arguments.ends)]
    if sum(kinds) != 1:
        raise UsageError(
            "nothing to remove is given" if not any(kinds) else "a call removes nodes, inputs or outputs",
            todo="pass the names of nodes, or one of --op, --inputs and --outputs",
        )
    if nodes is not None:
        return "remove-nodes", {"nodes": nodes}
    if arguments.ends:
        return "remove-outputs", {"outputs": _names(arguments.ends, "--outputs")}
    if not any("=" in text for text in arguments.starts):
        return "remove-inputs", {"inputs": _names(arguments.starts, "--inputs")}
    pairs = [_pair(text, "NAME=VALUE", "--inputs mask=1") for text in arguments.starts]
    return "remove-inputs", {"inputs": {name: _settings.value(text) for name, text in pairs}}


def _replace(arguments: argparse.Namespace) -> Chosen:
    if _are_operators(arguments.nodes) and not arguments.op and arguments.by is None and arguments.match is None:
        return "replace-op", {"nodes": {"op": arguments.nodes[0]}, "op": arguments.nodes[1], **_attributes(arguments)}
    nodes = _nodes(arguments)
    if arguments.match is not None or arguments.emit is not None:
        if arguments.match is None or arguments.emit is None or nodes is not None or arguments.by is not None:
            raise UsageError("--match and --emit go together, without nodes and --with")
        return "replace-subgraph", {"rule": {"match": arguments.match, "emit": arguments.emit}}
    if nodes is None or arguments.by is None:
        missing = "no nodes are given" if nodes is None else "what replaces the nodes is not given"
        raise UsageError(missing, todo="write it like --op LeakyRelu --with Relu, or give a rule by --match and --emit")
    if arguments.by.endswith(".onnx"):
        return "replace-subgraph", {"nodes": nodes, "file": arguments.by}
    return "replace-op", {"nodes": nodes, "op": arguments.by, **_attributes(arguments)}


def _are_operators(names: Sequence[str]) -> bool:
    """Return whether the names are two operators of ONNX, rather than nodes."""
    import onnx

    return len(names) == 2 and all(onnx.defs.has(name) for name in names)


def _add_outputs(arguments: argparse.Namespace) -> Chosen:
    return "add-outputs", {"outputs": _names(arguments.tensors, "TENSOR")}


def _to_opset(name: str) -> Callable[[argparse.Namespace], Chosen]:
    def read(arguments: argparse.Namespace) -> Chosen:
        if arguments.opset is not None and arguments.to not in (None, arguments.opset):
            raise UsageError("two opsets are given", todo="give one")
        opset = arguments.to if arguments.opset is None else arguments.opset
        if opset is not None and not opset.isdecimal():
            raise UsageError(f"'{opset}' is not the number of an opset", todo="see 'surgery opset MODEL'")
        return name, {} if opset is None else {"to": int(opset)}

    return read


def _strip(arguments: argparse.Namespace) -> Chosen:
    return "strip-metadata", {"keep": _names(arguments.keep, "--keep")} if arguments.keep else {}


def _cut(arguments: argparse.Namespace) -> Chosen:
    given = {"inputs": arguments.starts, "outputs": [*arguments.tensors, *arguments.ends]}
    found: dict[str, Any] = {name: _names(texts, f"--{name}") for name, texts in given.items() if texts}
    if not found:
        raise UsageError("no tensor is given", todo="pass --inputs NAME or --outputs NAME")
    return "cut", found


_NODES = Argument(("nodes",), "NODE", "names of nodes, globs, or selectors such as '{op: Conv}'", many=True)
_OP = Argument(("--op",), "OP[,OP]", "the nodes of these operators", many=True)
_ATTRIBUTE = Argument(
    ("--attribute",), "NAME=VALUE", "an attribute of the new operator; null drops an old one", many=True
)
_INPUTS = ("--inputs",)
_OUTPUTS = ("--outputs",)
_DATA = "--input-data"

EDITS = {
    "add-outputs": Edit(
        """Add intermediate tensors as outputs, for debugging.

'surgery view MODEL' shows the names of tensors. A form of 'surgery run add-outputs':

    surgery add-outputs model.onnx 'encoder/layer.0/*' -o out.onnx
""",
        (Argument(("tensors",), "TENSOR", "names of tensors, or globs", many=True),),
        _add_outputs,
    ),
    "rename": Edit(
        """Rename tensors, inputs, outputs, nodes and dims.

Whatever has the old name in the model is renamed; --kind limits it. Old names may be globs, whose wildcards stand for
the same letters in the new name. A form of 'surgery run rename':

    surgery rename model.onnx pixel_values=image 'encoder/*=enc/*' -o out.onnx
""",
        (
            Argument(("names",), "OLD=NEW", "an old name and the new one", many=True),
            Argument(("--kind",), "KIND", "rename only inputs, outputs, tensors, nodes or dims"),
        ),
        _rename,
    ),
    "set-dims": Edit(
        """Fix, free or name dims of inputs and outputs, such as the batch.

A form of 'surgery run set-dims', which adapts what depends on the old size:

    surgery set-dims model.onnx batch=1 -o out.onnx
    surgery set-dims model.onnx pixel_values=1,3,224,224 -o out.onnx
    surgery set-dims model.onnx 'pixel_values[0]=batch' -o out.onnx
    surgery set-dims model.onnx --batch-size batch -o out.onnx
""",
        (
            Argument(
                ("sizes",),
                "DIM=SIZE",
                "a dim and its size or new name; an input or output with all its dims, of which ? leaves one; or with "
                "one, as image[0]=1",
                many=True,
            ),
            Argument(("--batch-size",), "SIZE", "the size or the name of the batch: the first dim of the inputs"),
        ),
        _set_dims,
    ),
    "cut": Edit(
        """Cut a model at tensors, keeping its other inputs and outputs.

Tensors given by --inputs become inputs; those given by --outputs replace the outputs after them. To keep only the part
between tensors, use 'surgery extract'. A form of 'surgery run cut':

    surgery cut model.onnx features -o out.onnx
    surgery cut model.onnx --inputs stem --outputs features -o out.onnx
""",
        (
            Argument(("tensors",), "TENSOR", "tensors that become outputs, as those of --outputs", many=True),
            Argument(_INPUTS, "NAME[,NAME]", "tensors that become inputs", many=True, dest="starts"),
            Argument(_OUTPUTS, "NAME[,NAME]", "tensors that become outputs", many=True, dest="ends"),
        ),
        _cut,
        _DATA,
    ),
    "insert": Edit(
        """Insert an operator after a tensor, after nodes, or before an input of nodes.

This changes the results, which are then checked and run but not compared, unless '--set keeps=exact' says that it does
not. A form of 'surgery run insert-after' and 'surgery run insert-before':

    surgery insert model.onnx Clip --after logits --min 0 --max 6 -o out.onnx
    surgery insert model.onnx Mul --before '{op: Conv}' --operands 1/255 -o out.onnx
""",
        (
            Argument(("operator",), "OP", "the operator, such as Clip or com.microsoft::Gelu"),
            Argument(("--after",), "TENSOR[,TENSOR]", "tensors or globs: what reads them reads the result"),
            Argument(("--after-node",), "NODE", "nodes, by name, glob or selector: after their first output"),
            Argument(("--before",), "NODE", "nodes, by name, glob or selector: before their first input"),
            Argument(
                ("--operands",),
                "VALUE[,VALUE]",
                "the other inputs: numbers, lists, or names of tensors; for operators of ONNX also by name, as --min 0",
            ),
            _ATTRIBUTE,
        ),
        _insert,
        rewrite=_with_operands,
    ),
    "remove": Edit(
        """Remove nodes, inputs or outputs.

What read a removed node reads its input instead. This changes the results, which are then checked and run but not
compared, unless '--set keeps=exact' says that it does not. A removed input becomes a constant. A form of 'surgery run'
with remove-nodes, remove-inputs or remove-outputs:

    surgery remove model.onnx --op Dropout -o out.onnx
    surgery remove model.onnx 'head/clip*' -o out.onnx
    surgery remove model.onnx --inputs mask=1 -o out.onnx
""",
        (
            _NODES,
            _OP,
            Argument(_INPUTS, "NAME[=VALUE]", "inputs, with their values", many=True, dest="starts"),
            Argument(_OUTPUTS, "NAME[,NAME]", "outputs, with the nodes that only they need", many=True, dest="ends"),
        ),
        _remove,
        _DATA,
    ),
    "replace": Edit(
        """Replace nodes by another operator, another model, or the result of a rule.

This changes the results, which are then checked and run but not compared, unless '--set keeps=exact' or '--set
keeps=close' says that it does not. A form of 'surgery run replace-op' and 'surgery run replace-subgraph':

    surgery replace model.onnx Relu Sigmoid -o out.onnx
    surgery replace model.onnx Relu LeakyRelu --alpha 0.1 -o out.onnx
    surgery replace model.onnx --op LeakyRelu --with Relu --attribute alpha=null -o out.onnx
    surgery replace model.onnx --match 'y = Relu(x)' --emit 'y = Sigmoid(x)' -o out.onnx
""",
        (
            _NODES,
            _OP,
            Argument(("--with",), "OP", "the operator, or an .onnx file, that replaces the nodes", dest="by"),
            _ATTRIBUTE,
            Argument(("--match",), "TEXT", "a pattern in ONNX text, instead of nodes"),
            Argument(("--emit",), "TEXT", "what replaces each match of --match"),
        ),
        _replace,
        rewrite=_with_attributes,
    ),
    "upgrade": Edit(
        """Convert a model to a newer opset.

'surgery opset MODEL' lists the opsets that a model can have. A form of 'surgery run upgrade-opset':

    surgery upgrade model.onnx 21 -o out.onnx
""",
        (
            Argument(("opset",), "OPSET", "the opset (default: as 'surgery passes upgrade-opset' says)", optional=True),
            Argument(("--to",), "OPSET", "the same"),
        ),
        _to_opset("upgrade-opset"),
    ),
    "downgrade": Edit(
        """Convert a model to an older opset, for runtimes that lack the newer one.

'surgery opset MODEL' lists the opsets that a model can have. A form of 'surgery run downgrade-opset':

    surgery downgrade model.onnx 13 -o out.onnx
""",
        (
            Argument(("opset",), "OPSET", "the opset (default: the newest that --target supports)", optional=True),
            Argument(("--to",), "OPSET", "the same"),
        ),
        _to_opset("downgrade-opset"),
    ),
    "strip": Edit(
        """Remove metadata: stack traces, paths and doc strings of exporters.

Names of nodes stay, unless '--set node_names=true' is given. A form of 'surgery run strip-metadata':

    surgery strip model.onnx --keep 'names*' -o out.onnx
""",
        (Argument(("--keep",), "KEY[,KEY]", "keys of metadata to keep, or globs", many=True),),
        _strip,
    ),
}
"""The commands, by name."""
