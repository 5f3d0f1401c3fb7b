"""Other people's tools, each as one step that is checked and taken back like any other."""
