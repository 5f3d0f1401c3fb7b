"""Drawing documents made up for the tests of the viewer and its benchmark."""

import itertools
from dataclasses import dataclass, field
from typing import Any

_OPS = ("MatMul", "Add", "Gelu", "LayerNormalization", "Reshape", "Transpose", "Softmax", "Mul", "Conv", "ReduceMean")


@dataclass
class Maker:
    """Collects the columns of a drawing document."""

    strings: dict[str, int] = field(default_factory=lambda: {"": 0})
    nodes: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    edges: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)
    altered: list[tuple[int, int, int]] = field(default_factory=list)
    details: dict[int, dict[str, Any]] = field(default_factory=dict)

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def node(self, op: str, name: str, layer: int, order: int = 0, x: int = 100, group: int = -1, **more: Any) -> int:
        row = {"op": op, "name": name, "layer": layer, "order": order, "x": x, "group": group}
        self.nodes.append({"domain": "", "born": 0, "died": -1, "pass": "", "killer": "", **row, **more})
        return len(self.nodes) - 1

    def group(self, name: str, layer: int, parent: int = -1, **more: Any) -> int:
        row = {"parent": parent, "name": name, "layer": layer, "order": 0, "x": 130}
        self.groups.append({"kind": "scope", "count": 1, "instance": 0, "owner": -1, **row, **more})
        return len(self.groups) - 1

    def edge(
        self, source: int, target: int, value: str, type_: str = "float[1,128,768]", born: int = 0, died: int = -1
    ) -> None:
        self.edges.append((source, target, self.string(value), self.string(type_), born, died))

    def document(self, title: str, states: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        texts = {"op", "domain", "name", "pass", "killer", "kind"}
        edges = list(zip(*self.edges, strict=True)) or [()] * 6
        altered = list(zip(*self.altered, strict=True)) or [()] * 3
        links = list(zip(*self.links, strict=True)) or [()] * 2
        ports = [row for row, node in enumerate(self.nodes) if node["domain"] == "surgery.port"]

        def columns(rows: list[dict[str, Any]], names: str) -> dict[str, list[int]]:
            return {n: [self.string(r[n]) if n in texts else r[n] for r in rows] for n in names.split()}

        made = {
            "format_version": 1,
            "title": title,
            "states": states or [{"label": title, "pass": None, "nodes": len(self.nodes)}],
            "nodes": columns(self.nodes, "op domain name born died group layer order x pass killer"),
            "altered": dict(zip(("node", "state", "what"), map(list, altered), strict=True)),
            "links": dict(zip(("from", "to"), map(list, links), strict=True)),
            "edges": dict(zip(("from", "to", "value", "type", "born", "died"), map(list, edges), strict=True)),
            "groups": columns(self.groups, "parent name kind layer order x count instance owner"),
            "ports": {
                "name": [self.string(self.nodes[row]["name"]) for row in ports],
                "type": [self.string("float[1,128,768]") for _ in ports],
                "kind": [self.string(self.nodes[row]["op"].lower()) for row in ports],
                "node": ports,
                "born": [0 for _ in ports],
                "died": [-1 for _ in ports],
            },
            "details": [self.details.get(row) for row in range(len(self.nodes))],
        }
        return {**made, "strings": list(self.strings)}


def flat(count: int, width: int = 40) -> dict[str, Any]:
    """Return a graph without groups: rows of `width` nodes, with an edge down, one across, and some far ones."""
    made = Maker()
    for row in range(count):
        layer, order = divmod(row, width)
        op = _OPS[(row * 7 + layer) % len(_OPS)]
        made.node(op, f"layer.{layer}/{op}_{order}", layer, order, 110 + order * 216)
    for row in range(width, count):
        made.edge(row - width, row, f"v{row - width}")
        if row % 3 == 0 and row % width:
            made.edge(row - width - 1, row, f"v{row - width - 1}")
        if row % 97 == 0 and row > 12 * width:
            made.edge(row - 12 * width, row, f"v{row - 12 * width}")
    return made.document(f"flat-{count}")


def grouped(count: int, inside: int = 25) -> dict[str, Any]:
    """Return a chain of scopes with `inside` nodes each, in scopes of twenty."""
    made = Maker()
    stages = max(1, count // (inside * 20))
    before = -1
    for stage in range(stages):
        outer = made.group(f"stage.{stage}", stage)
        for block in range(20):
            group = made.group(f"block.{block}", block, outer)
            for k in range(inside):
                node = made.node(_OPS[k % len(_OPS)], f"stage.{stage}/block.{block}/{k}", k, 0, 100, group)
                if before >= 0:
                    made.edge(before, node, f"v{before}")
                before = node
    return made.document(f"grouped-{count}")


def changed() -> dict[str, Any]:
    """Return three states of a small graph: two Gelu fused of three nodes each, then an Identity removed."""
    made = Maker()
    port = {"domain": "surgery.port"}
    image = made.node("Input", "image", 0, 0, 120, **port)
    layers = made.group("layer.*", 1, kind="repeat", count=2)
    last = image
    for k in range(2):
        block = made.group(f"layer.{k}", 0, layers, instance=k)
        gone = {"died": 1, "killer": "fuse-gelu"}
        gemm = made.node("Gemm", f"layer.{k}/gemm", 0, 0, 100, block)
        parts = [
            made.node(op, f"layer.{k}/gelu/{op}", at + 1, 0, 60, block, **gone)
            for at, op in enumerate(("Div", "Erf", "Mul"))
        ]
        new = made.node("Gelu", f"layer.{k}/gelu", 2, 1, 160, block, born=1, **{"pass": "fuse-gelu"})
        norm = made.node("LayerNormalization", f"layer.{k}/norm", 4, 0, 100, block)
        made.edge(last, gemm, f"x{k}")
        for source, target in zip([gemm, *parts], [*parts, norm], strict=True):
            made.edge(source, target, f"v{source}", died=1)
        made.edge(gemm, new, f"v{gemm}", born=1)
        made.edge(new, norm, f"v{parts[-1]}", born=1)
        made.links += [(part, new) for part in parts]
        made.details[new] = {
            "inputs": [[made.string(f"v{gemm}"), made.string("float[1,128,768]"), None]],
            "outputs": [[made.string(f"v{parts[-1]}"), made.string("float[1,128,768]")]],
            "attributes": {"approximate": "none"},
            "origins": parts,
            "passes": [made.string("fuse-gelu")],
            "macs": 98304,
            "seconds": 0.00012,
            "error": {"needed": 0.012, "where": made.string("fuse-gelu")},
            "rule": made.string("Fuse Gelu.\n\ny = Mul(x, Erf(Div(x, sqrt2)))"),
        }
        last = norm
    identity = made.node("Identity", "tail", 2, 0, 120, died=2, killer="drop-identity")
    head = made.node("Gemm", "head", 3, 0, 120)
    logits = made.node("Output", "logits", 4, 0, 120, **port)
    made.edge(last, identity, "h", died=2)
    made.edge(identity, head, "i", died=2)
    made.edge(last, head, "h", born=2)
    made.edge(head, logits, "logits")
    made.altered.append((head, 2, made.string("input 0: i -> h")))
    states = [
        {"label": "original", "pass": None, "nodes": 12, "file": "changed.onnx"},
        {
            "label": "fuse-gelu",
            "pass": "fuse-gelu",
            "nodes": 8,
            "step": 0,
            "sites": 2,
            "verdict": "close",
            "needed": 1.2e-7,
        },
        {
            "label": "drop-identity",
            "pass": "drop-identity",
            "nodes": 7,
            "step": 3,
            "sites": 1,
            "verdict": "equal",
            "file": "result.onnx",
        },
    ]
    return made.document("changed.onnx", states)


HOSTILE = (
    "<script>window.broken=1</script>",
    "<img src=x onerror='window.broken=1'>",
    "</script><script>window.broken=1</script>",
    "\x1b[31mred\x1b[0m\x07",
    "abc\u202egpj.exe\u2066\u200b",
    "' onmouseover='window.broken=1",
    "n" * 10_000,
    "javascript:window.broken=1",
    "\ud800 lone",
    "--output=/etc/passwd; rm -rf $HOME `id`",
)


def hostile() -> dict[str, Any]:
    """Return a graph all of whose texts try to be something else."""
    made = Maker()
    group = made.group(HOSTILE[0], 0)
    nodes = [made.node(text, text, k, 0, 100, group if k % 2 else -1) for k, text in enumerate(HOSTILE)]
    for k, (source, target) in enumerate(itertools.pairwise(nodes)):
        made.edge(source, target, HOSTILE[k], HOSTILE[-k - 1])
    for node, text in zip(nodes, HOSTILE, strict=True):
        made.details[node] = {
            "attributes": {text: text},
            "doc": made.string(text),
            "source": made.string(text),
            "rule": made.string(text),
            "inputs": [
                [made.string(text), made.string(text), {"dims": [1], "type": text, "values": [text], "bytes": 4}]
            ],
        }
    return made.document(HOSTILE[0])
