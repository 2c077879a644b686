"""The check counts delayed messages, by the time at which they are due."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kombu import Connection, Queue

from ami import transports
from ami.transports.objectstore.__main__ import main


def test_delayed_messages_are_counted_apart_from_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    transports.register()
    folder = tmp_path / "broker"
    with Connection(f"objectstore+{folder.as_uri()}") as connection:
        Queue("moths", durable=True)(connection.default_channel).declare()
        # Its mark of expiry is no message.
        connection.Producer().publish(0, routing_key="moths", expiration=3_600)
        due = datetime.now(UTC) + timedelta(days=400)
        for _ in range(3):
            connection.Producer().publish(1, routing_key="moths", headers={"eta": due.isoformat()})
    assert main(["check", "--json", str(folder)]) == 0
    answer = json.loads(capsys.readouterr().out)
    [moths, delayed] = answer["queues"]
    assert (moths["queue"], moths["waiting"], delayed["waiting"]) == ("moths", 1, 3)
    begins = datetime.fromisoformat(delayed["queue"].removeprefix("(delayed until ").removesuffix(")"))
    assert begins <= due < begins + timedelta(days=1)
    # The mark may be in such a slot, too: in the hour before one begins.
    log = max((folder / "delayed").glob("*-65536/00000001.log"))
    log.write_bytes(log.read_bytes()[:-1])
    assert main(["check", str(folder)]) == 1
    assert "DAMAGED" in capsys.readouterr().out
