"""What a new pass begins with: one module for each kind, and its case files. They are read, never imported."""
