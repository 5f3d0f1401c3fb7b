"""What a result depends on: digests of models, recipes, passes and packages; locks; provenance statements."""
