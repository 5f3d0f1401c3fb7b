"""All ONNX operators that can be decomposed into smaller ones. Importing this module registers them."""

from . import _parts_activations, _parts_attention, _parts_bodies, _parts_einsum, _parts_norms, _parts_simple

PARTS = (_parts_activations, _parts_attention, _parts_bodies, _parts_einsum, _parts_norms, _parts_simple)
