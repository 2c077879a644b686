"""Errors of the topology: one sentence each, with the remedy."""


class TopologyError(ValueError):
    """A row, an override or a queue name that contradicts itself or the table."""
