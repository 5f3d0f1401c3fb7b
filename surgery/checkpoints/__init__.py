"""Import checkpoint weights into initializers: names, layouts, types, and mismatches."""
