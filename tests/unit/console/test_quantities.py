"""Figures as text, and the line of the last hour."""

import pytest

from ami.console import quantities
from ami.console.sparkline import sparkline
from ami.console.templatetags.console import leaf, soft, stem
from ami.console.templatetags.figures import every


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.04, "40 ms"),
        (2.5, "2.5 s"),
        (59.9, "59.9 s"),
        (59.99, "60 s"),
        (180, "3 min"),
        (4800, "1 h 20 min"),
        (7200, "2 h"),
        (180_000, "2 d 2 h"),
    ],
)
def test_duration_is_short(seconds, text):
    assert quantities.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0, "0"), (200_000, "200\u2009000"), (1.25, "1.2"), (11.5, "11.5")]
)
def test_number_has_thin_spaces(value, text):
    assert quantities.number(value) == text


@pytest.mark.parametrize(("count", "text"), [(None, "–"), (512, "512 B"), (2048, "2 KiB"), (3 * 1024**3, "3.0 GiB")])
def test_size_has_binary_units(count, text):
    assert quantities.size(count) == text


def test_line_keeps_its_gaps_and_tells_its_values():
    image = str(sparkline([1, 2, None, None, 8, 4], "Waiting"))
    assert image.count("M") == 4
    assert 'aria-label="Waiting: now 4, most 8"' in image
    assert "style=" not in image


def test_line_without_history_is_words():
    assert "no history yet" in str(sparkline([None, None], "Waiting"))
    assert "<svg" in str(sparkline([0], "Waiting"))


def test_long_names_break_behind_their_separators():
    assert soft("ami.jobs.tasks.run_<b>") == "ami.<wbr>jobs.<wbr>tasks.<wbr>run_<wbr>&lt;b&gt;"
    assert soft("ingest@host-1") == "ingest@<wbr>host-<wbr>1"
    assert (stem("ami.jobs.tasks.run_job"), leaf("ami.jobs.tasks.run_job")) == ("ami.jobs.tasks", "run_job")


@pytest.mark.parametrize(
    ("words", "shown"),
    [("every 15 seconds", "every 15 s"), ("every 3600 seconds", "every 1 h"), ("5 4 * * * (m/h/dM/MY/d) UTC",) * 2],
)
def test_intervals_are_said_in_their_largest_unit(words, shown):
    assert every(words) == shown
