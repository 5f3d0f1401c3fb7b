"""Other people's tools as guarded steps: each works on a copy in a bounded worker, and is judged like any pass.

`running` hands a model to a tool and takes over what that made. What the tool is given stands in `packing`, what is
put back into its result in `restore`, what the installed versions offer in `installed`. The calls themselves are in
`native`, which workers import, and import nothing else of the engine.
"""
