"""One recipe over many models: sources, executors, and a ledger of results.

    surgery batch RECIPE SOURCE... --out DIR

`model_selection` turns arguments into `Entry`s, `ledger` stores them in SQLite, `schedule` passes them to an executor
and records the results, and `job` runs one model in a separate process.
"""
