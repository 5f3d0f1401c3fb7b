"""Facts about the inputs of operators: which values are legal, telling and likely."""
