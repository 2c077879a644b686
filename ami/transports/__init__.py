"""kombu transports over stores with leases: brokers for people who have none."""


def register() -> None:
    """Let kombu find the transports by their URLs; called before the first connection is made."""
    from kombu.transport import TRANSPORT_ALIASES

    TRANSPORT_ALIASES["objectstore"] = "ami.transports.objectstore.broker.transport:Transport"
