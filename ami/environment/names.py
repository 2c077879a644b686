"""Finds variables that nothing reads: misspelt, cut short, or of the system before."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping

#: Every variable with this prefix is ours.
OWN = "ANTENNA_"

#: Kubernetes sets these for each Service of a namespace
#: (https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables).
SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_|$)")

#: How many letters a name may differ from a known one to be taken for it.
LETTERS = 2

#: A known name of this length, with at most two wrong letters, is not another program's.
LONG = 16

_REMEDY = "Correct or unset it; docs/settings.md lists every variable."


def unknown(environ: Mapping[str, str], known: Collection[str], shared: tuple[str, ...]) -> Iterator[str]:
    """Yield a sentence for each variable that nothing reads and that was meant for us.

    That is one with our own prefix; one that is a long known name with at most two wrong letters; and one with a prefix
    of ``shared``, which others use, too, if it is a known name with two wrong letters, or one that is cut short
    (``CELERY_BROKER``).
    """
    for name in _unread(environ, known):
        fact = f"{name} is not a variable that anything reads."
        if name.endswith("_FILE") and name.removesuffix("_FILE") in known:
            yield f"{fact} {name.removesuffix('_FILE')} is not read from a file; set it itself."
        elif name.upper().startswith(OWN):
            yield f"{fact}{_did_you_mean(name, known)} {_REMEDY}"
        elif (meant := _nearest(name, known)) and (len(meant) >= LONG or name.startswith(shared)):
            yield f"{fact} Did you mean '{meant}'? {_REMEDY}"
        elif name.startswith(shared) and (cut := _cut_short(name, known)):
            yield f"{fact} Did you mean '{cut}'? {_REMEDY}"


def suspected(environ: Mapping[str, str], known: Collection[str], shared: tuple[str, ...]) -> Iterator[str]:
    """Yield a sentence for each variable that is nearly a short known name, and may as well be another program's."""
    for name in _unread(environ, known):
        ours = name.upper().startswith(OWN) or name.startswith(shared)
        if not ours and (meant := _nearest(name, known)) and len(meant) < LONG:
            yield f"{name} is not a variable that Antenna reads. Did you mean '{meant}'?"


def _unread(environ: Mapping[str, str], known: Collection[str]) -> Iterator[str]:
    names = (name for name, value in sorted(environ.items()) if value and name not in known)
    return (name for name in names if not SERVICE_LINK.search(name))


def _did_you_mean(name: str, known: Collection[str]) -> str:
    """Compare what follows the prefix, which every name of ours has."""
    ours = [each.removeprefix(OWN) for each in known if each.startswith(OWN)]
    near = difflib.get_close_matches(name.upper().removeprefix(OWN), ours, n=1)
    return f" Did you mean '{OWN}{near[0]}'?" if near else ""


def _nearest(name: str, known: Collection[str]) -> str:
    letters, nearest = min(((distance(name, each), each) for each in known), default=(LETTERS + 1, ""))
    return nearest if letters <= LETTERS else ""


def _cut_short(name: str, known: Collection[str]) -> str:
    return min((each for each in known if each.startswith(f"{name}_")), default="", key=len)


def distance(one: str, other: str) -> int:
    """Return how many letters must be inserted, removed or replaced to make one word the other (Levenshtein).

    More than ``LETTERS`` are not counted: every process compares each variable of its environment with each known one.
    """
    if abs(len(one) - len(other)) > LETTERS or len({*one} ^ {*other}) > 2 * LETTERS:
        return LETTERS + 1
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, row = row, [i]
        for j, own in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != own)))
        if min(row) > LETTERS:
            break
    return min(row[-1], LETTERS + 1)


def superseded(environ: Mapping[str, str], successors: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable of the system before; ``successors`` says what is read instead."""
    for name in sorted(environ):
        if environ[name] and name in successors:
            yield f"{name} is not read any more: {successors[name]}."
