"""A recipe run over a model: each pass a transaction, judged, then committed or rolled back."""
