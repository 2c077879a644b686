"""How many examples Hypothesis tries, on a machine that may be slow."""

from hypothesis import HealthCheck, settings

from tests.support.soak import soak


def examples(short: int, long: int) -> settings:
    """Return settings for ``short`` examples, always the same ones, and for ``long`` new ones under ``make soak``.

    How long an example takes tells what else the machine does, and fails no test.
    """
    return settings(
        max_examples=soak(short, long),
        derandomize=soak(True, False),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
