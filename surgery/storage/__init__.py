"""Reading and writing of models in files and at URLs: skeletons, mapped weights, streamed saving.

Each name is imported on first use, because importing onnx and onnx-ir takes half a second in total.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surgery.storage.checkpoints import Checkpoint as Checkpoint
    from surgery.storage.checkpoints import read_checkpoint as read_checkpoint
    from surgery.storage.checkpoints import write_checkpoint as write_checkpoint
    from surgery.storage.content_names import is_by_content as is_by_content
    from surgery.storage.convert import ir_from_proto as ir_from_proto
    from surgery.storage.convert import proto_from_ir as proto_from_ir
    from surgery.storage.domains import without_alias as without_alias
    from surgery.storage.elements import bytes_of as bytes_of
    from surgery.storage.elements import same_elements as same_elements
    from surgery.storage.export import QUANTIZATION as QUANTIZATION
    from surgery.storage.files import output_errors as output_errors
    from surgery.storage.files import write_texts as write_texts
    from surgery.storage.loading import load as load
    from surgery.storage.loading import opened as opened
    from surgery.storage.loading import opens_in_runtime as opens_in_runtime
    from surgery.storage.residue import residue_of as residue_of
    from surgery.storage.saving import External as External
    from surgery.storage.saving import Layout as Layout
    from surgery.storage.saving import check_target as check_target
    from surgery.storage.saving import is_data_of as is_data_of
    from surgery.storage.saving import resolve as resolve
    from surgery.storage.saving import save as save
    from surgery.storage.saving import saved_size as saved_size
    from surgery.storage.skeleton import INLINE_LIMIT as INLINE_LIMIT
    from surgery.storage.skeleton import StoredModel as StoredModel
    from surgery.storage.skeleton import from_proto as from_proto
    from surgery.storage.spill import spill_tensor as spill_tensor
    from surgery.storage.staging import Staging as Staging
    from surgery.storage.staging import is_copy as is_copy
    from surgery.storage.staging import output_path as output_path
    from surgery.storage.staging import put_model as put_model
    from surgery.storage.staging import shown as shown
    from surgery.storage.tensors import all_tensors as all_tensors
    from surgery.storage.tensors import external_reference as external_reference
    from surgery.storage.tensors import is_external as is_external
    from surgery.storage.tensors import payload_bytes as payload_bytes
    from surgery.storage.tensors import refer as refer
    from surgery.storage.tensors import weight_bytes as weight_bytes
    from surgery.storage.weights import Weights as Weights
    from surgery.storage.wire import Reference as Reference

_HOMES = {
    "Checkpoint": "checkpoints",
    "read_checkpoint": "checkpoints",
    "write_checkpoint": "checkpoints",
    "is_by_content": "content_names",
    "ir_from_proto": "convert",
    "proto_from_ir": "convert",
    "bytes_of": "elements",
    "same_elements": "elements",
    "QUANTIZATION": "export",
    "without_alias": "domains",
    "output_errors": "files",
    "write_texts": "files",
    "residue_of": "residue",
    "External": "saving",
    "Layout": "saving",
    "check_target": "saving",
    "is_data_of": "saving",
    "resolve": "saving",
    "save": "saving",
    "saved_size": "saving",
    "INLINE_LIMIT": "skeleton",
    "StoredModel": "skeleton",
    "from_proto": "skeleton",
    "load": "loading",
    "opened": "loading",
    "opens_in_runtime": "loading",
    "Staging": "staging",
    "is_copy": "staging",
    "output_path": "staging",
    "put_model": "staging",
    "shown": "staging",
    "spill_tensor": "spill",
    "all_tensors": "tensors",
    "external_reference": "tensors",
    "is_external": "tensors",
    "payload_bytes": "tensors",
    "refer": "tensors",
    "weight_bytes": "tensors",
    "Weights": "weights",
    "Reference": "wire",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value: object = getattr(import_module(f"surgery.storage.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
