"""Renders NATS's login as the file that its configuration includes."""

#: NATS reads the file as a member of this user's group.
MODE = 0o640

#: What would end the text, and what begins an escape.
ESCAPED = str.maketrans({"\\": r"\\", '"': r"\""})


def render(user: str, password: str) -> str:
    """Return the file. Quoted, a password of digits is no number, and one with a # is not cut off there."""
    return f"authorization: {{ user: {_quoted(user)}, password: {_quoted(password)} }}\n"


def _quoted(text: str) -> str:
    return f'"{text.translate(ESCAPED)}"'
