"""Why a notice was not sent."""


class NotSent(Exception):
    """A receiver did not accept a notice; the message is a clause without addresses and secrets."""
