"""How long a processing service that does not answer counts as starting: a cold container loads its models first."""

COLD_START_SECONDS = 90.0

UNSEEN_SECONDS = 60
"""A pull service that has not called for so long is offline."""
