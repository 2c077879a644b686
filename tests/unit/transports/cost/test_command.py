"""The command line of the calculator."""

import json

import pytest

from ami.transports.objectstore.__main__ import main
from ami.transports.objectstore.cost import command, sample
from ami.transports.objectstore.cost.requests import PRICES, Requests

#: What is counted takes ten seconds; that the command tells just that is shown beside the counting.
COUNTED = sample.Sample(
    stored_bytes=1000,
    published=Requests(get=2.0, put=1.0),
    claimed=Requests(get=2.0, put=1.0),
    acknowledged=Requests(get=1.0, put=1.0),
    poll=Requests(get=2),
    beat=Requests(get=2, put=1, list=1),
    renewal=Requests(put=1),
    heartbeat=Requests(get=1),
)


@pytest.fixture(autouse=True)
def _counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.sample, "take", lambda message_bytes, batch: COUNTED)
    monkeypatch.setattr(command, "upkeep", lambda message_bytes, workers: Requests(get=0.02, put=0.02, delete=0.02))


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> dict:
    assert main(["cost", "--json", *argv]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_table_names_every_row_and_the_price(capsys: pytest.CaptureFixture[str]):
    assert main(["cost"]) == 0
    out = capsys.readouterr().out
    for part in ("publish", "claim", "acknowledge", "poll", "presence", "all of it", "USD", "Amazon S3"):
        assert part in out


def test_json_adds_up(capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, "--ops", "1000", "--workers", "2")
    assert found["usd"] == pytest.approx(sum(row["usd"] for row in found["rows"]))
    for kind, number in found["month"].items():
        assert number == pytest.approx(sum(row["month"][kind] for row in found["rows"]))
    assert found["load"]["messages"] == 1000


def test_ten_times_the_messages_cost_ten_times_as_much_and_waiting_does_not(capsys: pytest.CaptureFixture[str]):
    one, ten = (answer(capsys, "--ops", ops, "--idle-hours", "0") for ops in ("1000", "10000"))
    assert ten["usd"] == pytest.approx(10 * one["usd"])


def test_a_given_price_takes_the_place_of_the_list_price(capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, "--prices", "gcs", "--price-put", "1")
    assert found["prices_usd_per_1000"]["put"] == 1
    assert found["prices_usd_per_1000"]["get"] == PRICES["gcs"].get
    assert "as given" in found["prices_usd_per_1000"]["name"]


def test_a_price_of_nothing_is_a_price(capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, *(f"--price-{kind}=0" for kind in Requests._fields))
    assert found["usd"] == 0


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--ops", "-1", "'-1' is no whole number of 0 or more"),
        ("--ops", "1e6", "'1e6' is no whole number"),
        ("--workers", "0", "'0' is no whole number of 1 or more"),
        ("--queues", "many", "'many' is no whole number"),
        ("--message-bytes", "0", "1 to 8388608"),
        ("--idle-hours", "745", "'745' is no number of 0 to 744"),
        ("--price-get", "nan", "'nan' is no number of 0 or more"),
        ("--price-get", "inf", "'inf' is no number"),
        ("--prices", "tape", "invalid choice: 'tape'"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(
    option: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(["cost", f"{option}={value}"])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_help_says_what_is_counted_and_what_is_multiplied(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["cost", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "counted" in out
    assert "intervals" in out
