"""Plans: what a recipe would do to a model, site by site, and runs that do exactly that."""
