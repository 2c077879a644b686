"""Exports: a project's occurrences written to a file that a person can download."""
