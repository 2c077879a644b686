"""An attack on the product as deployed, on this machine only: ``python -m tests.attack``."""
