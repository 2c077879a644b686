"""The tests: unit (no network), integration (real services), acceptance (real worker processes)."""
