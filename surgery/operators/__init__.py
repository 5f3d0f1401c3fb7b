"""Everything known about operators, one file for each question."""
