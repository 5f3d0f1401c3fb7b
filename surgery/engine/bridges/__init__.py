"""Passes in other APIs: the annotation of the first parameter selects the API.

`Graph` is the engine's own API, which edits in sites. In any other API, the function gets the whole model, and returns
a new one, or None if it changed the given one; see `surgery.engine.bridges.whole`. `add_pass` makes passes of onnx-ir
and onnxscript objects; see `surgery.engine.bridges.pass_objects`.

Other tools run as guarded steps: `run_tool` runs a tool on a copy of the model in a worker with limits, and adopts the
result. `tool_packing` prepares the input of the tool, `tool_restore` restores features that the tool drops, and
`installed_tools` lists the features of the installed versions. The calls themselves are in `tool_calls`, which workers
import, and which imports nothing else from this folder.
"""
