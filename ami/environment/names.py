"""Finds variables that nothing reads: misspelt, cut short, or from an earlier version."""

import re
from collections.abc import Collection, Iterator, Mapping

from ami.environment.errors import did_you_mean

#: Every variable with this prefix is ours.
OWN = "ANTENNA_"

#: Kubernetes sets these for each Service of a namespace
#: (https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables).
SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_|$)")

#: How many letters a name may differ from a known one to be taken for it.
LETTERS = 2


def unknown(environ: Mapping[str, str], known: Collection[str], near: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each variable that nothing reads and that somebody meant for us.

    That is one with our own prefix; and one with a prefix of ``near``, which others use, too, if it is a known name
    with at most two wrong letters, or one that is cut short (``CELERY_BROKER``).
    """
    for name, value in sorted(environ.items()):
        if name in known or not value:
            continue
        if name.startswith(OWN):
            if not SERVICE_LINK.search(name):
                yield f"{name} is not a variable that anything reads.{did_you_mean(name, known)} {_REMEDY}"
        elif name.startswith(tuple(near)) and (meant := _meant(name, known)):
            yield f"{name} is not a variable that anything reads. Did you mean '{meant}'? {_REMEDY}"


_REMEDY = "Correct or unset it; docs/settings.md lists every variable."


def _meant(name: str, known: Collection[str]) -> str | None:
    cut = [each for each in known if each.startswith(f"{name}_")]
    nearest = min(((distance(name, each), each) for each in known), default=(LETTERS + 1, ""))
    return nearest[1] if nearest[0] <= LETTERS else min(cut, default=None, key=len)


def distance(one: str, other: str) -> int:
    """Return how many letters must be inserted, removed or replaced to make one word the other (Levenshtein)."""
    if abs(len(one) - len(other)) > LETTERS:
        return LETTERS + 1
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, row = row, [i]
        for j, own in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != own)))
    return row[-1]


def superseded(environ: Mapping[str, str], successors: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable of an earlier version; ``successors`` says what is read instead."""
    for name in sorted(environ):
        if environ[name] and name in successors:
            yield f"{name} is not read any more: {successors[name]}."
