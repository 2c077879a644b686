"""The kombu transport: exchanges, bindings, consumers and wake-ups over one store per queue."""
