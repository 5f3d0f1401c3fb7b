"""Third-party tools as guarded steps: each works on a copy in a bounded worker, and is verified like any pass.

`running` runs a tool on a model and takes over the result. `packing` prepares the input, `restore` restores features in
the result, and `installed` lists what the installed versions offer. The calls themselves are in `native`, which workers
import, and import nothing else of the engine.
"""
