"""What is wrong with a URL, in a sentence that repeats no part of it: cut in the wrong place, any has the password."""

from urllib.parse import urlsplit

from ami.environment.declaration import Variable


def wrong_url(variable: Variable, url: str, schemes: tuple[str, ...], *, password: bool = True) -> str:
    """Return the sentence, or nothing for a URL that names a host, one of ``schemes`` and, if asked, a password.

    ``schemes`` ending in ``+...`` are only shown.
    """
    name, example = variable.name, variable.example
    try:
        parts = urlsplit(url)
        scheme, host, secret, _ = parts.scheme, parts.hostname, parts.password, parts.port
    except ValueError:
        return f"{name} is not a URL; write it like {example}, special characters of the password percent-encoded."
    if scheme not in schemes:
        known = ", ".join(f"{each}://" for each in schemes)
        return f"{name} begins with none of {known}; write it like {example}."
    if not host and scheme != "sqlite":
        return f"{name} names no host; write it like {example}."
    if password and not secret:
        return f"{name} carries no password; services in production are never open. Write it like {example}."
    return ""
