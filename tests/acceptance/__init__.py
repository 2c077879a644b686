"""Tests that run real worker processes, as deployment does."""
