"""Benchmarks: each a command that prints its table with the reference measured in the same run."""
