"""Django's mail settings, from one URL."""

from typing import Any
from urllib.parse import unquote, urlsplit

#: For the connection and for each answer of the server.
TIMEOUT_SECONDS = 5
PORTS = {"smtp": 25, "smtp+tls": 587, "smtp+ssl": 465}


def mail(url: str, sender: str) -> dict[str, Any]:
    """Return the settings for ``smtp``, ``smtp+tls`` (STARTTLS) or ``smtp+ssl``; without a URL no mail is sent."""
    senders = {"DEFAULT_FROM_EMAIL": sender, "SERVER_EMAIL": sender}
    if not url:
        return {**senders, "EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend"}
    parts = urlsplit(url)
    return {
        **senders,
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname or "",
        "EMAIL_PORT": parts.port or PORTS[parts.scheme],
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_TLS": parts.scheme == "smtp+tls",
        "EMAIL_USE_SSL": parts.scheme == "smtp+ssl",
        "EMAIL_TIMEOUT": TIMEOUT_SECONDS,
    }
