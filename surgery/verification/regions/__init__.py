"""Values inside two models: the regions of a change, and intermediate values where outputs prove nothing.

The region of a change consists of its nodes, cut out of both models with the values at their boundary. It can be run on
generated values, independent of the surrounding nodes: a mask that is always zero, an operator that no engine can run,
a model too large to run often.
"""
