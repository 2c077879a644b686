"""Security tests of the deployed product, on this machine only: ``python -m tests.attack``."""
