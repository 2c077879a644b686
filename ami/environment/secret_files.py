"""Reads secrets from the files that ``<NAME>_FILE`` variables name, as Docker and Kubernetes mount them."""

from collections.abc import Iterable, MutableMapping
from pathlib import Path

from ami.environment.errors import EnvironmentRefused

MOST_BYTES = 64 * 1024

#: The value of every secret in `.env.example`; production refuses to start with it.
PLACEHOLDER = "change-me"


def read_files(names: Iterable[str], environ: MutableMapping[str, str]) -> None:
    """Put the content of each file that a ``<NAME>_FILE`` names into ``<NAME>``, and leave ``<NAME>_FILE`` empty.

    The environment has it then: boto and Flower read theirs there, and processes that this one starts inherit it.

    Raises:
        EnvironmentRefused: with a sentence for each file that cannot be used; it never repeats a secret.
    """
    sentences = []
    for name in names:
        variable = f"{name}_FILE"
        if path := environ.get(variable, ""):
            try:
                if environ.get(name, ""):
                    raise _Unusable(f"{name} and {variable} are both set; leave one of them empty.")
                environ[name] = _content(variable, path)
            except _Unusable as error:
                sentences.append(str(error))
            environ[variable] = ""
    if sentences:
        raise EnvironmentRefused(sentences)


def placeholder_refusal(name: str) -> str:
    """Return the sentence for a secret that still has the placeholder."""
    return f"{name} still holds the placeholder '{PLACEHOLDER}' of .env.example; put a secret of your own there."


class _Unusable(Exception):
    """A file that is not a secret."""


def _content(variable: str, path: str) -> str:
    """Return the text of a file without spaces and line breaks around it."""
    if not path.startswith("/"):  # Perhaps the secret itself: it is not repeated.
        raise _Unusable(
            f"{variable} is not an absolute path; write it like /run/secrets/name, and the secret into that file."
        )
    what = f"{variable} is '{path}', which"
    try:
        if not Path(path).is_file():
            raise _Unusable(f"{what} is not a file; mount the secret there or correct the path.")
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _Unusable(f"{what} cannot be read ({error.strerror}); let the user of this process read it.") from None
    if len(content) > MOST_BYTES:
        raise _Unusable(f"{what} is larger than {MOST_BYTES // 1024} KiB; let it hold the value and nothing else.")
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        raise _Unusable(f"{what} is not UTF-8; write the value as plain text.") from None
    if not secret or "\0" in secret:
        raise _Unusable(f"{what} holds no text; write the value into it.")
    if len(secret.splitlines()) > 1:
        raise _Unusable(f"{what} holds more than one line; let it hold the value and nothing else.")
    if PLACEHOLDER in secret:
        raise _Unusable(placeholder_refusal(what))
    return secret
