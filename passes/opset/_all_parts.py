"""All operators of ONNX that are written in smaller ones. To import this is to register them."""

from . import _parts_activations, _parts_attention, _parts_bodies, _parts_einsum, _parts_norms, _parts_simple

PARTS = (_parts_activations, _parts_attention, _parts_bodies, _parts_einsum, _parts_norms, _parts_simple)
