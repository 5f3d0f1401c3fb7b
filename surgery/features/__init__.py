"""Capabilities of the user next to applying recipes, one folder each; the commands of the same names call them.

Nothing here prints, parses arguments or draws, and features use each other only in the order of the layers test.
"""
