"""Drawing: a model over the steps of a run, or two models merged, as one document that a viewer draws."""
