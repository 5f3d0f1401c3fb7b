"""A model in memory and on disk: its bytes, files, graph, shapes, patterns and runs, and the profiles of runtimes.

Nothing here knows whether a change is right, or which change is made: no verdict, no pass and no recipe.
"""
