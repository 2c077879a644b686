"""Settings: base for all, and one module per kind of place."""
