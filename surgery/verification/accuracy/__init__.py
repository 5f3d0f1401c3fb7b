"""What lossy steps lose: the budget, the inputs that it is measured on, and the measurement."""
