"""Programs of at most 40 lines, each run by a test in tests/acceptance/test_examples.py."""
