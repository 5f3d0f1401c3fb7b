"""Records to text and JSON. No logic of its own."""
