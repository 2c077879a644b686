"""Each row of the table of verdicts, and the limits between them."""

from dataclasses import replace

import pytest

from ami.queues.rescue.verdict import Facts, Verdict, decide

WELL = Facts(beat_age_seconds=5, is_connected=True, loop_age_seconds=2, loop_allowance_seconds=0, frame_age_seconds=9)
SILENT_SOLO = {"beat_age_seconds": 100, "answers": False, "loop_allowance_seconds": 360}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.WELL),
        ({"frame_age_seconds": None}, Verdict.WELL),
        ({"loop_age_seconds": 29.9, "frame_age_seconds": 59.9, "beat_age_seconds": 19.9}, Verdict.WELL),
        ({"loop_age_seconds": 30}, Verdict.WEDGED),
        ({"loop_age_seconds": 300, "loop_allowance_seconds": 360, "frame_age_seconds": 300}, Verdict.WELL),
        ({"loop_age_seconds": 400, "loop_allowance_seconds": 360}, Verdict.WEDGED),
        ({"loop_age_seconds": 300, "frame_age_seconds": 300, "is_connected": False}, Verdict.WELL),
        ({"frame_age_seconds": 60}, Verdict.CUT_OFF),
        ({"beat_age_seconds": 20, "answers": True}, Verdict.DATABASE_AWAY),
        ({"beat_age_seconds": 20, "answers": False}, Verdict.DEAD),
        ({"beat_age_seconds": 20, "answers": None}, Verdict.UNKNOWN),
        ({"beat_age_seconds": 900, "answers": False, "is_connected": False}, Verdict.DEAD),
        # A solo worker's task blocks the loop, which would answer: what its process does decides, or the task's limit.
        ({**SILENT_SOLO, "is_running": True}, Verdict.DATABASE_AWAY),
        ({**SILENT_SOLO, "is_running": None}, Verdict.UNKNOWN),
        ({**SILENT_SOLO, "is_running": False}, Verdict.DEAD),
        ({**SILENT_SOLO, "beat_age_seconds": 360, "is_running": True}, Verdict.DEAD),
    ],
)
def test_verdict_of_each_row(changes: dict[str, object], verdict: Verdict):
    assert decide(replace(WELL, **changes)) is verdict
