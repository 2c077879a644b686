"""The time of a capture in its path: one table of the forms that cameras write.

A wrong time is worse than none, so what could mean two things is not read: a day or a month first, minutes without
seconds, a counter that touches the stamp, epoch seconds. A station's own format (`time_formats`) reads the first two.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import PurePosixPath

FULL_DATE = r"(?P<year>20[0-9]{2})(?P<month>[0-9]{2})(?P<day>[0-9]{2})"
SPLIT_DATE = r"(?P<year>20[0-9]{2})(?P<dash>[-_.: /])(?P<month>[0-9]{1,2})(?P=dash)(?P<day>[0-9]{1,2})"
SHORT_DATE = r"(?P<year>[0-9]{2})(?P<month>[0-9]{2})(?P<day>[0-9]{2})"
#: What macOS writes before the time, in several languages.
AT = r"(?:at|um|om|à|a\u0300|às|a las|alle|kl\.)"
GAP = rf"(?:[-_ ]?(?P<t>T)[-_ ]?|[-_.,:+@ ]{{1,3}}|[-_ ]{AT}[-_ ])"
FULL_TIME = r"(?P<hour>[0-9]{2})(?P<minute>[0-9]{2})(?P<second>[0-9]{2})"
#: What systems write for a colon that a file name must not have.
COLON = r"[-_.:\ua789\uff1a\u2236\uf03a]"
#: One digit before what is a time itself is a camera's number.
SPLIT_TIME = (
    r"(?P<hour>[0-9]{2}|[0-9](?!(?P<sign>[-_.: ])(?:[01][0-9]|2[0-3])(?:(?P=sign)[0-5][0-9]){2}(?![0-9])))"
    rf"(?P<colon> |{COLON})(?P<minute>[0-9]{{2}})(?P=colon)(?P<second>[0-9]{{2}})"
)
SPELT_TIME = r"(?P<hour>[0-9]{1,2})h(?P<minute>[0-9]{2})m(?:in)?(?P<second>[0-9]{2})s?"
#: Digits behind "-" or "_" are a counter, unless a zone or AM and PM follow them.
POINT = r"[.,]|[-_](?=(?:[0-9]{3}){1,2}(?:Z(?![^\W_])|\+[0-9]|[-_ ]?[AP]\.?M(?![A-Z])))"
FRACTION = rf"(?:(?P<point>{POINT})?(?P<fraction>[0-9]{{1,9}}))?(?![0-9])"
#: In another language than English it is not read: Chinese, Japanese, Korean, Greek.
OTHER_HALF = r"(?:[\u4e0a\u4e0b]?\u5348|\uc624[\uc804\ud6c4]|[\u03c0\u03bc]\.? ?\u03bc)"
HALF = rf"(?![-_. (]{{0,2}}{OTHER_HALF})(?:[-_. (]{{0,2}}(?P<half>[AP])\.?[ ]?M(?![A-Z])\.?)?"
#: "-0500" is a counter, unless the time is behind a "T"; with a colon it is a zone. Behind a "T" and a time in pairs,
#: "-05-00" is one too.
MINUTES = f"(?:{COLON}?(?:00|15|30|45))?"
ZONE = (
    rf"(?P<zone>Z(?![^\W_])|[-_. (]{{0,2}}(?:UTC|GMT)(?:[+-][0-9]{{1,2}}{MINUTES})?(?![^\W_])"
    rf"|[ _]?\+[0-9]{{2}}{MINUTES}(?![0-9])|[ ]?-[0-9]{{2}}[:\ua789\uff1a\u2236\uf03a][0-9]{{2}}(?![0-9])"
    rf"|(?(t)(?:[ _]?-[0-9]{{4}}|(?:(?<={COLON}[0-9]{{2}})|(?<=\.[0-9]{{6}}))-[0-9]{{2}}{COLON}[0-9]{{2}})(?![0-9])"
    r"|(?!)))?"
)
TAIL = FRACTION + HALF + ZONE


def _compiled(*forms: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(form, re.IGNORECASE) for form in forms)


STAMPS = _compiled(
    rf"(?<![0-9]){FULL_DATE}{GAP}?{FULL_TIME}{TAIL}",
    rf"(?<![0-9]){FULL_DATE}{GAP}{SPLIT_TIME}{TAIL}",
    rf"(?<![0-9]){FULL_DATE}{GAP}{SPELT_TIME}{TAIL}",
    rf"(?<![0-9]){SPLIT_DATE}{GAP}{FULL_TIME}{TAIL}",
    rf"(?<![0-9]){SPLIT_DATE}{GAP}{SPLIT_TIME}{TAIL}",
    rf"(?<![0-9]){SPLIT_DATE}{GAP}{SPELT_TIME}{TAIL}",
)
SHORT_STAMPS = _compiled(
    rf"(?<![0-9]){SHORT_DATE}{GAP}?{FULL_TIME}{TAIL}(?![^\W_])",
    rf"(?<![0-9]){SHORT_DATE}{GAP}{SPLIT_TIME}{TAIL}(?![^\W_])",
)
FOLDERS = _compiled(rf"(?:^|/){FULL_DATE}$", rf"(?:^|/){SPLIT_DATE}$")

#: At most two counters may follow a time that stands alone, behind those in brackets.
COUNTERS = r"(?:\[[^\]]*\])*(?:[^0-9]+[0-9]{1,3}){0,2}[^0-9]*$"
#: Six digits below 010000 are a counter as well as a time. Of four pairs, the time may be the first or the last three.
TIMES_ALONE = _compiled(
    rf"^(?:(?P<t>T)|(?!00)){FULL_TIME}{TAIL}{COUNTERS}",
    r"^(?:[^\W\d_]+[0-9]{0,3}[-_. ]+)*(?P<t>T)?"
    rf"(?![0-9]+[-_.: ](?:[01][0-9]|2[0-3])(?:[-_.: ][0-5][0-9]){{2}}(?![0-9])){SPLIT_TIME}{TAIL}{COUNTERS}",
    rf"^(?:[^\W\d_]+[0-9]{{0,3}}[-_. ]+)*(?P<t>T)?{SPELT_TIME}{TAIL}{COUNTERS}",
)

#: Digits of UUIDs and digests are no time.
DIGESTS = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-z])(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})(?![0-9a-z])",
    re.IGNORECASE,
)
#: A day and a month before the year.
DAY_FIRST = re.compile(r"(?<![0-9])(?!00?\D)[0-3]?[0-9]([-_.: ])(?!00?\D)[0-3]?[0-9]\1$")

OFFSET = re.compile(rf"(?:[-. (]*(?:UTC|GMT))?([+-])([0-9]{{1,2}}){COLON}?([0-9]{{2}})?", re.IGNORECASE)
#: The first two digits of an earlier year could be a month.
FIRST_SHORT_YEAR = 2013
EARLIEST_MINUTES_YEAR = 2010


def time_in_name(path: str) -> datetime | None:
    """Return the time in the file name, or its time of day on the date that is its folder's name; None if it has none.

    Without a zone in the name, it is the station's local time. Of two stamps the last is taken.
    """
    pure = PurePosixPath(_spaced(path))
    name = DIGESTS.sub(lambda digest: "x" * len(digest[0]), pure.name)
    stamps = dict(_stamps(STAMPS, name))
    rest = name
    for start, (end, _) in stamps.items():
        rest = rest[:start] + "x" * (end - start) + rest[end:]
    stamps |= {start: (end, taken) for start, (end, taken) in _stamps(SHORT_STAMPS, rest)}
    return stamps[max(stamps)][1] if stamps else _time_in_folder(str(pure.parent), name)


def time_in_text(text: str) -> datetime | None:
    """Return the time that the whole text is, year first; None if it is none."""
    return next((taken for form in STAMPS if (found := form.fullmatch(text)) and (taken := _moment(found))), None)


def zone_of(text: str) -> timezone | None:
    """Return the zone of a text such as ``Z``, ``+02:00``, ``-0330`` or ``UTC+2``; None where it names none."""
    text = text.strip(" _\0").upper()
    if text.lstrip("-. (") in {"Z", "UTC", "GMT"}:
        return UTC
    if (found := OFFSET.fullmatch(text)) is None:
        return None
    hours, minutes = int(found[2]), int(found[3] or 0)
    west = found[1] == "-"
    if hours > (12 if west else 14) or minutes not in {0, 15, 30, 45} or (west and not hours):
        return None
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if west else offset)


def _spaced(text: str) -> str:
    """Return the text with plain spaces: macOS writes a narrow one before AM and PM."""
    return re.sub(r"\s", " ", text)


def _stamps(forms: tuple[re.Pattern[str], ...], name: str) -> Iterator[tuple[int, tuple[int, datetime]]]:
    """Yield the start, the end and the time of each stamp in a name."""
    ends = [0]
    for form in forms:
        place = 0
        while found := form.search(name, place):
            behind = max(end for end in ends if end <= found.start())
            moment = None if _is_day_first(found, behind) else _moment(found)
            place = found.end() if moment else found.start() + 1
            if moment:
                ends.append(place)
                yield found.start(), (found.end(), moment)


def _time_in_folder(folder: str, name: str) -> datetime | None:
    date = next((found for form in FOLDERS if (found := form.search(folder))), None)
    if date is None:
        return None
    times = (found for form in TIMES_ALONE if (found := form.search(name)))
    moment = next((moment for found in times if (moment := _moment(found, date))), None)
    return None if moment and f"{moment:%H%M%S}" in {f"{moment:%y%m%d}", f"{moment:%d%m%y}"} else moment


def _moment(found: re.Match[str], date: re.Match[str] | None = None) -> datetime | None:
    """Return the time of a match, on the date of another one where it has none; None if it could be another time."""
    parts = {**(date.groupdict() if date else {}), **found.groupdict()}
    year, fraction = int(parts["year"]), parts["fraction"] or ""
    # Digits that touch the seconds are milliseconds or microseconds, or a counter. Behind a point, fewer are a counter.
    if fraction and len(fraction) % 3 and not (parts["point"] and parts["t"]):
        if not parts["point"]:
            return None
        fraction = ""
    try:
        moment = datetime(  # noqa: DTZ001 - without a zone it is the station's
            year if year > 99 else 2000 + year,
            int(parts["month"]),
            int(parts["day"]),
            _hour(int(parts["hour"]), (parts["half"] or "").upper()),
            int(parts["minute"]),
            int(parts["second"]),
            int(fraction[:6].ljust(6, "0")),
            tzinfo=zone_of(parts["zone"] or ""),
        )
    except ValueError:
        return None
    return None if year <= 99 and _has_other_reading(found[0], moment) else moment


def _hour(hour: int, half: str) -> int:
    """Return the hour from 0 to 23; 24 is the first hour of its date, as some cameras count from 1.

    Raises:
        ValueError: it contradicts AM or PM.
    """
    if not half:
        return 0 if hour == 24 else hour
    if hour > 23 or (half == "A" and hour > 12) or (half == "P" and not hour):
        raise ValueError(f"{hour} {half}M")
    return hour % 12 + (12 if half == "P" else 0)


def _is_day_first(found: re.Match[str], behind: int) -> bool:
    """Whether the year could end a date that begins with a day or a month, behind the stamp before it."""
    dash, text = found.groupdict().get("dash"), found.string
    return bool(dash and text.startswith(dash, found.end("day")) and DAY_FIRST.search(text, behind, found.start()))


def _has_other_reading(text: str, moment: datetime) -> bool:
    """Whether a text with a two-digit year could have a day or a month first, or minutes without seconds."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    if moment.year < FIRST_SHORT_YEAR or moment.replace(tzinfo=UTC) > tomorrow:
        return True
    return any(EARLIEST_MINUTES_YEAR <= year <= tomorrow.year for year in _years_without_seconds(text[:12]))


def _years_without_seconds(digits: str) -> Iterator[int]:
    """Yield the years of twelve digits that are a date, with the year or the day first, and a time without seconds."""
    for form in ("%Y%m%d%H%M", "%d%m%Y%H%M"):
        with suppress(ValueError):
            yield datetime.strptime(digits, form).year  # noqa: DTZ007
