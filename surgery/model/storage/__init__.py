"""Reading and writing of models in files and at URLs: skeletons, other formats, onnx-ir and back, streamed saving.

Each name is imported on first use, because importing onnx and onnx-ir takes half a second in total.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surgery.model.storage.domains import without_alias as without_alias
    from surgery.model.storage.files import output_errors as output_errors
    from surgery.model.storage.files import write_texts as write_texts
    from surgery.model.storage.ir_conversion import ir_from_proto as ir_from_proto
    from surgery.model.storage.ir_conversion import proto_from_ir as proto_from_ir
    from surgery.model.storage.ir_to_proto import QUANTIZATION as QUANTIZATION
    from surgery.model.storage.loading import load as load
    from surgery.model.storage.loading import opened as opened
    from surgery.model.storage.loading import opens_in_runtime as opens_in_runtime
    from surgery.model.storage.residue import residue_of as residue_of
    from surgery.model.storage.saving import External as External
    from surgery.model.storage.saving import Layout as Layout
    from surgery.model.storage.saving import check_target as check_target
    from surgery.model.storage.saving import is_data_of as is_data_of
    from surgery.model.storage.saving import resolve as resolve
    from surgery.model.storage.saving import save as save
    from surgery.model.storage.saving import saved_size as saved_size
    from surgery.model.storage.skeleton import INLINE_LIMIT as INLINE_LIMIT
    from surgery.model.storage.skeleton import StoredModel as StoredModel
    from surgery.model.storage.skeleton import from_proto as from_proto
    from surgery.model.storage.spill import spill_tensor as spill_tensor
    from surgery.model.storage.staging import Staging as Staging
    from surgery.model.storage.staging import is_copy as is_copy
    from surgery.model.storage.staging import output_path as output_path
    from surgery.model.storage.staging import put_model as put_model
    from surgery.model.storage.staging import shown as shown
    from surgery.model.wire.content_names import is_by_content as is_by_content
    from surgery.model.wire.same_elements import bytes_of as bytes_of
    from surgery.model.wire.same_elements import same_elements as same_elements
    from surgery.model.wire.tensors import all_tensors as all_tensors
    from surgery.model.wire.tensors import external_reference as external_reference
    from surgery.model.wire.tensors import is_external as is_external
    from surgery.model.wire.tensors import payload_bytes as payload_bytes
    from surgery.model.wire.tensors import refer as refer
    from surgery.model.wire.tensors import weight_bytes as weight_bytes
    from surgery.model.wire.weights import Weights as Weights
    from surgery.model.wire.wire import Reference as Reference

_HOMES = {
    "is_by_content": "wire.content_names",
    "ir_from_proto": "storage.ir_conversion",
    "proto_from_ir": "storage.ir_conversion",
    "bytes_of": "wire.same_elements",
    "same_elements": "wire.same_elements",
    "QUANTIZATION": "storage.ir_to_proto",
    "without_alias": "storage.domains",
    "output_errors": "storage.files",
    "write_texts": "storage.files",
    "residue_of": "storage.residue",
    "External": "storage.saving",
    "Layout": "storage.saving",
    "check_target": "storage.saving",
    "is_data_of": "storage.saving",
    "resolve": "storage.saving",
    "save": "storage.saving",
    "saved_size": "storage.saving",
    "INLINE_LIMIT": "storage.skeleton",
    "StoredModel": "storage.skeleton",
    "from_proto": "storage.skeleton",
    "load": "storage.loading",
    "opened": "storage.loading",
    "opens_in_runtime": "storage.loading",
    "Staging": "storage.staging",
    "is_copy": "storage.staging",
    "output_path": "storage.staging",
    "put_model": "storage.staging",
    "shown": "storage.staging",
    "spill_tensor": "storage.spill",
    "all_tensors": "wire.tensors",
    "external_reference": "wire.tensors",
    "is_external": "wire.tensors",
    "payload_bytes": "wire.tensors",
    "refer": "wire.tensors",
    "weight_bytes": "wire.tensors",
    "Weights": "wire.weights",
    "Reference": "wire.wire",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value: object = getattr(import_module(f"surgery.model.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
