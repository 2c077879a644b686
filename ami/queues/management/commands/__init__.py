"""The `queues` command."""
