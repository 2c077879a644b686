"""The object store as a queue."""
