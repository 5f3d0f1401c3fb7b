"""Commands that optimize, show, verify and measure models."""
