"""The files of a folder broker are readable by their owner only."""

import os
import stat

from kombu import Connection

from ami import transports


def test_messages_and_their_folder_are_closed_to_others(tmp_path):
    transports.register()
    folder, old = tmp_path / "broker", os.umask(0o022)
    try:
        with Connection(f"objectstore+{folder.as_uri()}") as connection:
            connection.SimpleQueue("modes").put({"secret": 1})
            files = [path for path in folder.rglob("*") if path.is_file()]
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files if path.exists()} == {0o600}
