"""Passes in other APIs: the annotation of the first parameter selects the API.

`Graph` is the engine's own, and edits by sites. In any other API the function gets the whole model, and returns a new
one, or None if it changed the given one; see `surgery.bridges.whole`. Objects of onnx-ir and onnxscript become passes
by `add_pass`, see `surgery.bridges.objects`.
"""
