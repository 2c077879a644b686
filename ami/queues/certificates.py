"""The certificate authorities that this process trusts, for every HTTPS client."""

import functools
import ssl


@functools.cache
def trusted() -> ssl.SSLContext:
    """Return httpx's own context, made once: reading the certificates takes it 75 ms, also for a plain HTTP call."""
    import httpx

    return httpx.create_ssl_context()
