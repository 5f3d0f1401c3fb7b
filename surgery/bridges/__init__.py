"""Passes in the API that their author knows: the annotation of the first parameter picks it.

`Graph` is the engine's own, and edits by sites. In any other API the function gets the whole model, and returns the new
one, or None when it changed what it was given; see `surgery.bridges.whole`. Objects of onnx-ir and onnxscript become
passes by `add_pass`, see `surgery.bridges.objects`.
"""
