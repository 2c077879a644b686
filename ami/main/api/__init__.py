"""The REST API of the core, one module per noun."""
