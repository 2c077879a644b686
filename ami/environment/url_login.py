"""Finds the login of a URL, also one whose password has a ``/`` or ``@`` that is not percent-encoded."""

import re

#: In the URLs of these schemes what follows ``:`` is a password wherever an ``@`` comes later. In others, digits and a
#: ``/`` are a port and a path, which may have an ``@``.
_WITHOUT_PATH = ("s3", "gs", "az", "memory", "amqp", "amqps", "redis", "rediss", "nats", "postgres", "postgresql")
_USER, _TO_LAST_AT = r"[^\s/@\"'<>:\[]*:", r"(?:(?!://)[^\s\"'<>])*@"

#: The login in a text, with its ``@``: as far as the last ``@`` of the URL where it has a password.
LOGIN = re.compile(
    rf"(?:{'|'.join(f'(?<={scheme}://)' for scheme in _WITHOUT_PATH)}){_USER}{_TO_LAST_AT}"
    rf"|(?<=://){_USER}(?!\d+[/?#]){_TO_LAST_AT}"
    r"|(?<=://)[^\s/@\"'<>]*(?:@[^\s/@\"'<>]*)*@"
)


def masked_url(url: str, mask: str = "**") -> str:
    """Return a URL without its password and query. Whatever stands before its last ``@`` is its login."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if not colon and "/" in user and not user.startswith("/"):
        user = mask
    return f"{scheme}://{user}{colon and colon + mask}{at}{place.partition('?')[0]}"
