"""Every finding has a duration, and the documentation says which."""

import re
from pathlib import Path

from ami.telemetry.alerts.rules import NEVER, RULES

DOCS = Path(__file__).resolve().parents[4] / "docs"


def test_every_finding_of_the_live_check_has_a_rule():
    table = (DOCS / "operations.md").read_text().partition("## What `queues check --live` finds")[2]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == set(RULES)


def test_documented_durations_are_those_of_the_rules():
    section = (
        (DOCS / "operations" / "records.md")
        .read_text()
        .partition("### When a finding is an alert")[2]
        .partition("\n#")[0]
    )
    documented = {
        name: seconds
        for seconds, names in re.findall(r"^\| (\d+ s|never|error only, \d+ s) \| (.*) \|$", section, re.MULTILINE)
        for name in re.findall(r"`([a-z-]+)`", names)
    }
    assert documented == {name: _words(rule) for name, rule in RULES.items()}


def _words(rule) -> str:
    if rule.levels == NEVER:
        return "never"
    return f"error only, {rule.after_seconds} s" if rule.levels == ("error",) else f"{rule.after_seconds} s"
