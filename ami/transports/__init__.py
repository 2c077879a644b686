"""kombu transports over stores with leases: brokers for people who have none."""

#: The classes in the transport's module by what kombu looks for: the part before ``+`` of the first URL, the whole
#: scheme of a URL that it switches to.
_CLASSES = {
    "objectstore": "Transport",
    "objectstore+file": "FileTransport",
    "objectstore+memory": "MemoryTransport",
    "objectstore+s3": "S3Transport",
    "objectstore+gs": "GSTransport",
    "objectstore+az": "AzureTransport",
}


def register() -> None:
    """Let kombu find the transports by their URLs; called before the first connection is made."""
    from kombu.transport import TRANSPORT_ALIASES

    for alias, name in _CLASSES.items():
        TRANSPORT_ALIASES[alias] = f"ami.transports.objectstore.broker.transport:{name}"
