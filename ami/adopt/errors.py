"""Why an adoption does not begin, or ends before its end; each text is a sentence with the remedy."""


class WrongSource(Exception):
    """The old broker's URL cannot be used, whatever the state of the brokers."""


class AdoptionRefused(Exception):
    """The state of the brokers, or another run, forbids to go on."""


class StorageFailed(Exception):
    """The storage of results does not take one."""


class OldBrokerFailed(Exception):
    """The old broker does not answer, or refused something."""
