"""Checks the files of a folder broker, read-only."""
