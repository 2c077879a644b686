"""The output of each verb of ``python -m ami.topology``."""

import json
import re
import shlex

import pytest

from ami.topology.__main__ import main
from ami.topology.topology import load


def test_table_shows_every_row_and_the_fingerprint(capsys):
    assert main(["table"]) == 0
    printed = capsys.readouterr().out
    for row in load().as_dicts():
        assert f"{row['queue']!s:>26}" in printed.splitlines()[0]
        assert f"{row['memory_limit_kib']!s:>26}" in printed
    assert f"fingerprint {load().fingerprint}" in printed


def test_table_as_json_has_the_same_rows(capsys):
    assert main(["table", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["fingerprint"] == load().fingerprint
    assert [row["queue"] for row in printed["workloads"]] == [row["queue"] for row in load().as_dicts()]


def test_queues_are_printed_one_per_line(capsys):
    assert main(["queues"]) == 0
    assert capsys.readouterr().out.split() == list(load().queues)


def test_policies_and_definitions_name_every_dead_letter_queue(capsys, monkeypatch):
    monkeypatch.setenv("RABBITMQ_USER", "antenna")
    monkeypatch.setenv("RABBITMQ_PASSWORD", "secret of this test")
    monkeypatch.setenv("RABBITMQ_VHOST", "/")
    assert main(["policies"]) == 0
    policies = json.loads(capsys.readouterr().out)
    assert policies
    assert main(["definitions"]) == 0
    definitions = json.loads(capsys.readouterr().out)
    assert {row["queue"] + ".dlq" for row in load().as_dicts()} <= {queue["name"] for queue in definitions["queues"]}


@pytest.mark.processes
def test_worker_print_shows_the_command_with_extra_celery_options(capsys):
    assert main(["worker", "antenna-ingest", "--print", "--concurrency", "3"]) == 0
    argv = shlex.split(capsys.readouterr().out)
    assert argv[argv.index("--queues") + 1] == "antenna-ingest"
    assert argv[-2:] == ["--concurrency", "3"]


@pytest.mark.processes
def test_printed_auto_concurrency_says_what_it_is_here(capfd, monkeypatch):
    monkeypatch.setenv("ANTENNA_INGEST_CONCURRENCY", "auto")
    assert main(["worker", "antenna-ingest", "--print"]) == 0
    printed = capfd.readouterr()
    assert "--concurrency auto" in printed.out
    assert re.search(r"The concurrency of antenna-ingest is \d+: 90% of \d+ cores", printed.err)


@pytest.mark.processes
def test_beat_print_shows_the_command(capsys):
    assert main(["beat", "--print"]) == 0
    assert "beat" in shlex.split(capsys.readouterr().out)


def test_unknown_queue_is_one_sentence_and_exit_code_2(capsys):
    assert main(["worker", "antena-ingest", "--print"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "antenna-ingest" in line


def test_celery_options_are_refused_by_other_verbs(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["queues", "--concurrency", "3"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --concurrency 3" in capsys.readouterr().err


def test_compose_file_is_checked_written_and_printed(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["compose", "--check"]) == 1
    assert "make render" in capsys.readouterr().err
    assert main(["compose", "--write"]) == 0
    assert main(["compose", "--check"]) == 0
    assert main(["compose"]) == 0
    assert capsys.readouterr().out == (tmp_path / "docker-compose.worker.yml").read_text()


def test_all_refuses_more_children_than_the_machine_holds(capsys):
    assert main(["all", "--concurrency", "512"]) == 2
    assert "this machine's memory holds" in capsys.readouterr().err
