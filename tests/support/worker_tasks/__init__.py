"""Tasks that only tests run, in worker processes."""
