"""The shapes of the reports of `--format json`: what surgery promises of them.

A shape is the name of a type, with "?" if it may be null; a list with the shape of the items; or a mapping of keys to
shapes, in which a key that ends with "?" may be absent. Other keys are allowed, because later versions may add some.

Shapes are not derived from the records that reports show, so that a change of a record does not change them unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_VERDICT = {
    "verdict": "string?",
    "reason": "string?",
    "needed": "object?",
    "message": "string",
    "details": "object?",
    "region": "integer?",
    "together": "integer?",
}
_STEP = {
    "pass": "string",
    "status": "string",
    "sites": "integer",
    **_VERDICT,
    "nodes_before": "integer",
    "nodes_after": "integer",
    "seconds": "number",
    "refused_sites": ["object"],
    "kept": ["object"],
    "defects": ["object"],
    "why": "object?",
    "where": "string?",
    "applied": ["object"],
    "declined": ["object"],
}
_MODEL = {"path": "string?", "nodes": "integer", "ops": "object", "bytes": "integer?", "sha256": "string?"}
_RUN = {
    "ok": "boolean",
    "recipe": "string",
    "input": _MODEL,
    "output": "object",
    "steps": [_STEP],
    "expectations": "array",
    "end": "object?",
    "deployed": "object?",
    "bindings": ["object"],
    "providers": ["string"],
    "seconds": "number",
    "strict": "boolean",
    "original": "object",
    **dict.fromkeys(("unverifiable", "misfits", "shortfall"), "string?"),
    "shortfalls": [{"words": "string", "exit_code": "integer"}],
    "refused": "array",
    "command": "string",
    "environment": "object",
    "recipes": ["object"],
    "memory": "object",
    "open": ["string"],
}
_SINGLE = {**_RUN, "yaml": "string"}
_FILES = {"files": [{"path": "string", "bytes": "integer"}]}
_VALIDITY = {
    "valid": "boolean",
    "findings": ["string"],
    "runtime": "string?",
    "failure": "string?",
    "overridable": "integer",
    "repaired": "string?",
}
_PASS = {
    "name": "string",
    "theme": "string",
    "summary": "string",
    "parity": "string",
    "changes": ["string"],
    "origin": "string",
    "place": "string",
    "api": "string",
    "options": ["object"],
}
_PROBLEM = {"path": "string", "line": "integer", "column": "integer", "message": "string"}
_CHANGES = [{"what": "string"}]
_ROW = {
    **dict.fromkeys(("name", "model", "recipe", "state", "stage", "kind", "reason", "limits"), "string"),
    **dict.fromkeys(("verdict", "unverified", "input_sha256", "output_sha256"), "string?"),
    **dict.fromkeys(("rtol", "atol", "tolerance", "seconds"), "number?"),
    **dict.fromkeys(("nodes_before", "nodes_after", "bytes_before", "bytes_after"), "integer?"),
    "refused": "integer?",
    "attempts": "integer",
    "input_files": ["string"],
    "output_files": ["string"],
}

SHAPES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "apply": (_RUN,),
    "run": (_SINGLE,),
    "extract": (_SINGLE,),
    **dict.fromkeys(("rename", "set-dims", "cut", "add-outputs", "insert", "remove", "replace"), (_SINGLE,)),
    **dict.fromkeys(("upgrade", "downgrade", "strip"), (_SINGLE,)),
    "merge": (_SINGLE,),
    "inspect": (
        {
            "path": "string",
            "ir_version": "integer",
            "producer": "string",
            "opsets": "object",
            "inputs": ["object"],
            "overridable": ["object"],
            "outputs": ["object"],
            "nodes": "integer",
            "depth": "integer",
            "ops": "object",
            "domains": "object",
            "functions": "object",
            "parameters": "integer",
            "parameters_by_type": "object",
            "weight_bytes": "integer",
            "bytes": "integer",
            "metadata": "object",
            "metadata_bytes": "object",
            "analysis": "object",
            "validity": _VALIDITY,
        },
        {
            "target": "string",
            "about": "string",
            "source": "string",
            "fits": "boolean",
            "nodes": "integer",
            "off": "integer",
            "misfits": ["object"],
            "steps": "array",
        },
    ),
    "view": ({"output": "string", "bytes": "integer", "nodes": "integer", "groups": "integer"},),
    "check": ({"models": [{"model": "string", **_VALIDITY, "problem": "string?"}]},),
    "opset": (
        {
            "path": "string",
            "opset": "integer?",
            "ir_version": "integer",
            "ir_version_read_by": "string?",
            "lowest": "integer?",
            "lowest_converted": "integer?",
            "candidates": ["object"],
            "obstacles": ["object"],
            "domains": ["object"],
            "functions": "object",
        },
    ),
    "diff": (
        {
            "same": "boolean",
            "before": "object",
            "after": "object",
            "nodes": "object",
            "constants": "object",
            "operators": ["object"],
            "signature": ["object"],
            "opsets": ["object"],
            "functions": ["object"],
            "metadata": ["object"],
            "sizes": ["object"],
            "parity": "object?",
        },
    ),
    "verify": (
        {
            "ok": "boolean",
            **_VERDICT,
            "verdict": "string",
            "by": "string",
            "inputs": "array",
            "outputs": "array",
            "signature": "array",
            "narrowed": "array",
            "findings": "array",
            "deployed": "object?",
            "bindings": ["object"],
        },
    ),
    "batch": (
        {
            "ok": "boolean",
            "counts": "object",
            "run": "integer",
            "totals": "object",
            "failures": [{"kind": "string", "cause": "string", "example": "string", "models": ["string"]}],
            "models": [_ROW],
            "ledger": "string",
            "seconds": "number",
        },
    ),
    "corpus": (
        {
            "before": "integer",
            "after": "integer",
            "same": "integer",
            "worse": "integer",
            "counts": "object",
            "totals": {"models": "integer", "nodes": ["integer"], "bytes": ["integer"], "seconds": ["number"]},
            "changes": [
                {
                    "name": "string",
                    "what": "string",
                    "before": "any",
                    "after": "any",
                    "worse": "boolean",
                    "note": "string",
                }
            ],
        },
    ),
    "cache-info": (
        {
            "folder": "string",
            "bytes": "integer",
            "limit": "integer?",
            "sets": "integer",
            "entries": "integer",
            "tensors": "integer",
            "tensor_bytes": "integer",
            "found": "integer",
            "missed": "integer",
        },
    ),
    "cache-prune": ({"files": "integer", "bytes": "integer", "left": "integer"},),
    "report": ({"report": "string", "graph": "boolean", "note": "string?"},),
    "bench": (
        {
            "ok": "boolean",
            "models": [{"name": "string", "path": "string", "seconds": "number", "speed": "object?"}],
            "level": "number",
            "threads": "integer",
            "clock": "string",
            "optimization": "string",
            "seed": "integer",
            "rounds": "integer",
            "calls": "integer",
            "sessions": "integer",
            "seconds": "number",
            "ended": "string",
            "inputs": ["object"],
        },
    ),
    "sensitivity": (
        {
            "model": "string",
            "pass": "string",
            "budget": ["string"],
            "use": "any",
            "metrics": "object",
            "synthetic": "boolean",
            "sites": [{"site": "integer", "anchor": "string", "use": "any", "metrics": "object", "macs": "number?"}],
        },
    ),
    "tune": (
        {
            "model": "string",
            "ok": "boolean",
            "recipe": "string",
            "trials": [
                {
                    "pass": "string",
                    "where": "string",
                    "what": "string",
                    "group": "string?",
                    "sites": "integer",
                    "verdict": "string?",
                    "details": "object?",
                    "speed": "object?",
                    "kept": "boolean",
                    "why": "string",
                }
            ],
            "speed": "object?",
            "level": "number",
            "threads": "integer",
            "clock": "string",
            "measurements": "integer",
            "inputs": ["object"],
            "complaint": "string?",
            "yaml": "string",
            "written": ["string"],
        },
    ),
    "bisect": (
        {
            "ok": "boolean",
            "recipe": "string",
            "step": "any",
            "sites": "integer",
            "guilty": "array",
            "rest_holds": "boolean?",
            "tries": "integer",
            "runs": "integer",
            "remark": "string",
            "repro": "any",
            "no_repro": "string?",
            "seconds": "number",
        },
    ),
    "passes": (
        {"passes": [_PASS]},
        {**_PASS, "doc": "string", "match": "array?", "before": "string?", "after": "string?", "refuses": ["string"]},
    ),
    "recipes": ({"recipes": [{"name": "string", "target": "string", "summary": "string"}]},),
    "targets": (
        {"targets": [{"name": "string", "summary": "string"}]},
        {
            **dict.fromkeys(("name", "summary", "source", "runs_in"), "string"),
            "domains": ["string"],
            **dict.fromkeys(("opsets", "ir_versions", "element_types"), "array?"),
            **dict.fromkeys(("rank", "constant_bytes"), "integer?"),
            **dict.fromkeys(("dynamic_dims", "subgraphs", "functions"), "boolean"),
            "operators": "array?",
        },
    ),
    "split": (
        {
            "ok": "boolean",
            "model": "string",
            "inputs": "array",
            "outputs": "array",
            "pieces": ["object"],
            "verdict": "object?",
            "files": ["string"],
        },
    ),
    "export-weights": ({"files": "array", "tensors": "integer", "bytes": "integer"},),
    "import-weights": (
        {
            "ok": "boolean",
            "files": ["string"],
            "imported": [
                {
                    "initializer": "string",
                    "tensors": ["string"],
                    "dims": ["integer"],
                    "dtype": "string",
                    "rows": ["string"],
                    "from_dtype": "string",
                }
            ],
            "unchanged": "integer",
            "misfits": [{"kind": "string", "name": "string", "message": "string"}],
            "kept": "array",
            "ignored": "array",
            "tied": "array",
            "suggestions": "object",
        },
    ),
    "export": (
        {
            "ok": "boolean",
            "target": "string",
            "file": "string?",
            "exporter": "string",
            "stages": [{"stage": "string", "text": "string", "seconds": "number"}],
            "warnings": "array",
            "exported": "object?",
            "cleanup": "object?",
            "result": "object?",
        },
    ),
    "externalize": (_FILES,),
    "embed": (_FILES,),
    "why": (
        {
            "model": "string",
            "pass": "string",
            "kind": "string",
            "at": "string?",
            "sites": "array",
            "near_misses": "array",
            "near_misses_total": "integer",
            "refusals": "array",
            "silent": "array",
            "looked": "any",
            "absent": "array",
            "operators": "any",
            "remark": "string",
        },
    ),
    "recipe-check": (
        {
            "recipes": [
                {
                    "recipe": "string",
                    "ok": "boolean",
                    "problems": [_PROBLEM],
                    "message?": "string",
                    "steps?": "integer",
                    "remarks?": ["string"],
                }
            ]
        },
    ),
    "plan": (
        {
            "format": "string",
            "verified": "string",
            "again": "boolean",
            "basis": "object",
            "before": "object",
            "after": "object",
            "expectations": "array",
            "steps": ["object"],
            "ok": "boolean",
            "failure": "string?",
        },
    ),
    "provenance": (
        {
            "model": "string",
            "ok": "boolean",
            "findings": "array",
            "checked": "array",
            "remarks": "array",
            "statement": "object",
        },
    ),
    "lock": ({"lock": "string", "changes": _CHANGES, "ok?": "boolean", "pins?": "object"},),
    "config-show": (
        {
            "files": [{"path": "string", "project": "boolean"}],
            "trust": "string?",
            "values": [
                {"flag": "string", "command": "string?", "value": "any", "from": "string", "overridden": "boolean"}
            ],
        },
    ),
    "completion": ({"shell": "string", "script": "string"},),
    "doctor": (
        {
            "ok": "boolean",
            "findings": [{"check": "string", "level": "string", "text": "string", "todo": "string"}],
        },
    ),
    "init": (
        {
            "model": "string",
            "recipe": "string",
            "test": "string",
            "workflow": "string",
            "steps": ["string"],
            "nodes_before": "integer",
            "nodes_after": "integer",
            "next": ["string"],
        },
    ),
    "new": ({"name": "string", "pass": "string", "cases": ["string"], "entry_point": "string?", "next": ["string"]},),
    "test": (
        {
            "ok": "boolean",
            "counts": "object",
            "incomplete": ["string"],
            "seconds": "number",
            "cases": [{"path": "string", "case": "string?", "status": "string", "findings": ["object"]}],
        },
    ),
}
"""The possible shapes of the report of each command."""
