"""Lets `python -m surgery` be the command line."""

from surgery.cli import command

command()
