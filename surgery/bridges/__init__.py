"""Passes in the API that their author knows: the annotation of the first parameter picks it.

`Graph` is the engine's own, and edits by sites. In any other API the function gets the whole model, and returns the new
one, or None when it changed what it was given; see `surgery.bridges.whole`. Objects of onnx-ir and onnxscript become
passes by `add_pass`, see `surgery.bridges.objects`.

Other people's tools are guarded steps: `run_tool` lets one work on a copy in a bounded worker, and takes over what it
made. What the tool is given stands in `tool_packing`, what is put back into its result in `tool_restore`, what the
installed versions offer in `installed_tools`. The calls themselves are in `tool_calls`, which workers import, and
import nothing else of this folder.
"""
