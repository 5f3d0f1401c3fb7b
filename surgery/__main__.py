"""Lets `python -m surgery` be the command line."""

from surgery.interface.commands import command

command()
