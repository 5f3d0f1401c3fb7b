"""Whether a changed model computes what the original computes: inputs, runs, comparison, verdict.

Nothing here knows who made the change, or what is done about it: no pass, no recipe and no report.
"""
