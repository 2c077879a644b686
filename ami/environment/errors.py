"""What is raised for a wrong environment."""

import difflib
from collections.abc import Iterable, Sequence


class EnvironmentRefused(ValueError):
    """Variables with wrong values; ``sentences`` has one for each, with the variable, what is wrong and the remedy."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.sentences = tuple(sentences)
        super().__init__("\n".join(self.sentences))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known word, or an empty string."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), list(by_lower), n=1)
    return f" Did you mean '{by_lower[near[0]]}'?" if near else ""
