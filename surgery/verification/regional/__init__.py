"""The region of a change: its nodes cut out of both models, and compared for themselves.

A change is a few nodes. Cut out with the values at their boundary, they can be run on values of our own making,
whatever stands around them: a mask that is always zero, an operator that nothing can run, a model too large to run
often.
"""

REGION, COSTLY = "region", "costly"
"""The reasons of a verdict that leaves the decision to the whole model."""
