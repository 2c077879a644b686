"""Prometheus and promtool of a test's own, and the scenes that its alert rules are tested with."""
