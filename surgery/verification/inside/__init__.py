"""Values inside two models: the regions of a change, and intermediate values where outputs prove nothing.

The region of a change is its nodes, cut out of both models with the values at their boundary. They can be run on values
of our own making, whatever stands around them: a mask that is always zero, an operator that nothing can run, a model
too large to run often.
"""
