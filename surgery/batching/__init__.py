"""One recipe over many models: what to run, who runs it, and a ledger of what came of it.

    surgery batch RECIPE SOURCE... --out DIR

`sources` turns arguments into `Entry`s, `ledger` remembers them in SQLite, `schedule` hands them to an executor and
notes what comes back, `job` is what runs for one model, in a process of its own.
"""
