"""External tools, each as one step that is verified and rolled back like any other."""
