"""The time of a capture in its file name, in the formats of camera traps."""

import re
from datetime import datetime
from pathlib import PurePosixPath

#: Year to second with any of the usual separators or none: 20220810232637, 2022-08-10_23-26-37, 20220810T232637.
STAMP = re.compile(
    r"(?<!\d)(?P<year>(?:19|20)\d\d)[-_.]?(?P<month>\d\d)[-_.]?(?P<day>\d\d)"
    r"[-_.T ]{0,3}(?P<hour>\d\d)[-_.:]?(?P<minute>\d\d)[-_.:]?(?P<second>\d\d)(?!\d)"
)


def time_in_name(path: str) -> datetime | None:
    """Return the time in the file name, without a zone (the station's local time); None if there is none.

    Digits that are not a valid date, such as a thirteenth month, are skipped.
    """
    name = PurePosixPath(path).name
    for match in STAMP.finditer(name):
        try:
            # Naive on purpose: the zone is the station's.
            return datetime(**{part: int(digits) for part, digits in match.groupdict().items()})  # noqa: DTZ001
        except ValueError:
            continue
    return None
