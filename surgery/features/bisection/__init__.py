"""Find the sites that make a step fail, and a small model that reproduces the failure."""
