"""Types of command-line arguments."""

import argparse


def positive(text: str) -> int:
    """Return a whole number of 1 or more, up to the largest key of a database."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return value
