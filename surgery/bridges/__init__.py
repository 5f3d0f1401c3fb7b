"""Passes in other APIs: the annotation of the first parameter selects the API.

`Graph` is the engine's own, and edits by sites. In any other API the function gets the whole model, and returns a new
one, or None if it changed the given one; see `surgery.bridges.whole`. Objects of onnx-ir and onnxscript become passes
by `add_pass`, see `surgery.bridges.objects`.

Other tools run as guarded steps: `run_tool` runs one on a copy in a bounded worker, and takes over the result.
`tool_packing` prepares what the tool is given, `tool_restore` puts back what it drops, `installed_tools` lists what the
installed versions offer. The calls themselves are in `tool_calls`, which workers import, and which imports nothing else
of this folder.
"""
