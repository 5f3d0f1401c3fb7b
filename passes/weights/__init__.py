"""Move arithmetic with constants into weights and attributes."""
