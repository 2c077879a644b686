"""What an operation raises for input that it cannot carry out; nothing was changed."""


class Refused(ValueError):
    """One sentence for the operator, with the nearest name where one was wrong."""
