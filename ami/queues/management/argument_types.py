"""Types of command-line arguments."""

import argparse


def positive(text: str) -> int:
    """Return a whole number of 1 or more."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return value
