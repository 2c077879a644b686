"""A station's own format of the times in its file names, in the words of `strptime`."""

import re
from datetime import datetime
from pathlib import PurePosixPath

#: An earlier time is none.
FIRST_YEAR = 2000
MAX_LENGTH = 100
NUMBER = "[0-9]{1,2}"
#: What a directive matches. Those whose text depends on the machine's language (%c, %x, %A, %Z) are left out.
DIRECTIVES = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": NUMBER,
    "d": NUMBER,
    "H": NUMBER,
    "I": NUMBER,
    "M": NUMBER,
    "S": NUMBER,
    "j": "[0-9]{3}",
    "f": "[0-9]{1,6}",
    "b": "[a-z]{3}",
    "B": "[a-z]{3,9}",
    "p": "[ap]m",
    "z": "(?:Z|[+-][0-9]{2}:?[0-9]{2})",
}
PARTS = {
    "a year, %Y or %y": ("Y", "y"),
    "a month and a day, %m and %d": ("m", "b", "B", "j"),
    "a day, %d": ("d", "j"),
    "an hour, %H, or %I and %p": ("H", "p"),
    "a minute, %M": ("M",),
}
EXAMPLE = "Write it like %d-%m-%Y_%H-%M-%S."


def problem_of(form: str) -> str:
    """Return why a format cannot be used; empty if it can, or is empty."""
    if len(form) > MAX_LENGTH:
        return f"Must not have more than {MAX_LENGTH} characters."
    literals, names = _split(form)
    if any("%" in text for text in literals):
        return f"Has a '%' without a directive; write '%%' for the sign. {EXAMPLE}"
    for name in names:
        if name not in DIRECTIVES and name != "%":
            return f"'%{name}' is not known here; known are {', '.join(f'%{known}' for known in DIRECTIVES)}. {EXAMPLE}"
        if name != "%" and names.count(name) > 1:
            return f"'%{name}' occurs twice. {EXAMPLE}"
    if "I" in names and "p" not in names:
        return f"'%I' needs '%p': without AM or PM an hour is two hours. {EXAMPLE}"
    if "p" in names and "I" not in names:
        return f"'%p' needs '%I': beside '%H' it is not read. {EXAMPLE}"
    missing = next((part for part, some in PARTS.items() if form and not set(some) & set(names)), "")
    return f"Needs {missing}. {EXAMPLE}" if missing else _refused_by_strptime(form)


def time_by_format(path: str, form: str) -> datetime | None:
    """Return the last time in the file name that has this format; None if there is none.

    A format with a ``/`` is searched in the whole path. Hour 24 is the first hour of its date.
    """
    text = re.sub(r"\s", " ", path if "/" in form else PurePosixPath(path).name)
    moments = (_moment(found, form) for found in _pattern(form).finditer(text))
    return next(reversed([moment for moment in moments if moment and moment.year >= FIRST_YEAR]), None)


def _split(form: str) -> tuple[list[str], list[str]]:
    """Return the texts around the directives, and the directives' letters."""
    parts = re.split(r"%(.)", form, flags=re.DOTALL)
    return parts[::2], parts[1::2]


def _pattern(form: str) -> re.Pattern[str]:
    """Return the pattern of a format. A number that touches another one has all its digits."""
    literals, names = _split(form)
    pattern = re.escape(literals[0])
    for index, (name, behind) in enumerate(zip(names, literals[1:], strict=True)):
        part = "%" if name == "%" else DIRECTIVES[name]
        touches = (index > 0 and not literals[index]) or (not behind and index + 1 < len(names))
        if part == NUMBER and touches:
            part = "[0-9]{2}"
        pattern += (part if name == "%" else f"(?P<{name}>{part})") + re.escape(behind)
    return re.compile(rf"(?<![0-9]){pattern}(?![0-9])", re.IGNORECASE)


def _moment(found: re.Match[str], form: str) -> datetime | None:
    text = found[0]
    if found.groupdict().get("H") == "24":
        start, end = (place - found.start() for place in found.span("H"))
        text = f"{text[:start]}00{text[end:]}"
    try:
        return datetime.strptime(text, form)  # noqa: DTZ007 - without %z it is the station's
    except ValueError:
        return None


def _refused_by_strptime(form: str) -> str:
    """Return why `strptime` itself does not read what this format writes; empty if it does."""
    moment = datetime(2022, 8, 10, 23, 26, 37)  # noqa: DTZ001
    try:
        datetime.strptime(moment.strftime(form.replace("%z", "+0000")), form)  # noqa: DTZ007
    except ValueError as error:
        return f"Cannot be read: {error}."
    return ""
