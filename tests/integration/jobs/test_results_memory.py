"""Memory that a body of results takes in real processes; the short form of ``benchmarks.results_memory``."""

from benchmarks.results_memory import MIB, REAL_TARGET, Measured, Stage, target

#: What the first large request of a process leaves with it, whatever its size.
KEPT_MIB = 48
#: What a process takes beside its body: the rows of one statement, the stored copy while it is written.
APART_MIB = 16


def takes_too_much(row: Measured) -> bool:
    return row.peak_mib > (target(row) or REAL_TARGET) * row.mib + APART_MIB or row.kept_mib > KEPT_MIB


def test_web_takes_a_small_multiple_of_a_body_of_results(database_place):
    found = list(Stage(database_place, 3).web_rows(16 * MIB))
    assert [row for row in found if takes_too_much(row)] == []
    assert {row.body for row in found if row.outcome == "200"} == {"real shape", "many lists of scores"}
    assert {row.outcome for row in found} == {"200", "400", "refused"}


def test_ingest_takes_a_small_multiple_of_a_stored_result(database_place):
    found = Stage(database_place, 1).ingest_rows(2 * MIB)
    assert [row for row in found if takes_too_much(row)] == []
    # The string is smaller than what one result may have besides its lists.
    saved = {"real shape", "real shape, one image", "many lists of scores", "one string"}
    assert {row.body for row in found if row.outcome == "saved"} == saved
    assert {row.outcome for row in found} == {"saved", "refused"}
