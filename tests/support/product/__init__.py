"""Shared by the product's tests: rows, pictures, request bodies of clients, and fake services."""
