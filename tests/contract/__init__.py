"""Runs the real clients of the origin, from checkouts of theirs, against this API: ``make contract``."""
