"""Commands that edit models by hand."""
