"""Measured choices: which steps and sites pay, and what each costs in accuracy."""
