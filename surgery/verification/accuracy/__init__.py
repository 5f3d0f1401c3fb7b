"""The loss of lossy steps: the budget, the inputs on which it is measured, and the measurement."""
