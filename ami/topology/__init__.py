"""The one table that names a queue, and everything that is rendered from it."""
