"""The parts of an adoption: its counts over several runs, the old messages, and the old URL."""

import io
import itertools
import zlib
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from kombu.compression import decompress
from kombu.utils.json import dumps

from ami.adopt import command
from ami.adopt.becomes import CannotRun, RunsAs
from ami.adopt.bridge import Bridge
from ami.adopt.errors import AdoptionRefused, StorageFailed, WrongSource
from ami.adopt.old_broker import OldBroker
from ami.adopt.old_message import OldMessage, by_name
from ami.adopt.plan import Call, Outcome, Plan, Planner
from ami.adopt.source_url import read_url
from ami.adopt.split import Split, _content
from ami.adopt.tally import Tally
from ami.topology.topology import load

URL = "amqp://antenna:s3cret@rabbitmq:5672/antenna"


def message(body: Any = None, *, redelivered: bool = False, task_id: str = "1", **headers: Any) -> OldMessage:
    raw = SimpleNamespace(
        body=dumps([[], {}, {}]) if body is None else body,
        delivery_tag=1,
        delivery_info={"redelivered": redelivered},
        properties={
            "content_type": "application/json",
            "content_encoding": "utf-8",
            "application_headers": {"task": "t", "id": task_id, **headers},
        },
    )
    return OldMessage.of("antenna", raw)


def plan(of: OldMessage, *registered: str) -> Any:
    return Planner(load({}), {}, 1000, registered or ("t",)).plan(of)


@pytest.mark.django_db
@pytest.mark.sqlite
def test_killed_run_is_resumed_without_counting_a_message_twice():
    first = Tally("h:1/v")
    for task_id in ("1", "2"):
        first.begin(message(task_id=task_id), plan(message()))
        if task_id == "1":
            first.done(message(task_id=task_id), plan(message()))
    # Killed: message 2 comes again.
    second = Tally("h:1/v")
    again = message(redelivered=True, task_id="2")
    second.begin(again, plan(again))
    second.done(again, plan(again))
    third = message(task_id="3", redelivered=True)  # An old worker had held it.
    second.begin(third, plan(third))
    second.done(third, plan(third))
    second.save()
    assert (sum(second.counts.values()), second.possibly_doubled) == (3, 1)
    assert (sum(second.run.values()), second.run_possibly_doubled) == (2, 1)
    other = Tally("h:1/other")
    assert sum(other.counts.values()) == 0


@pytest.mark.django_db
@pytest.mark.sqlite
def test_name_and_id_that_no_database_takes_are_counted():
    tally, strange = Tally("h:1/v"), message(task="a\x00\ud800", task_id="\x00\ud800")
    tally.begin(strange, plan(strange))
    tally.done(strange, plan(strange))
    tally.save()
    (line,) = Tally("h:1/v").counts
    assert line.task == "(any other)"


@pytest.mark.django_db
def test_run_whose_publish_failed_leaves_that_message_in_doubt():
    first = Tally("h:1/v")
    one = message()
    first.begin(one, plan(one))
    first.failed(one, plan(one))
    first.save()
    second = Tally("h:1/v")
    again = message(redelivered=True)
    second.begin(again, plan(again))
    second.done(again, plan(again))
    assert (sum(second.counts.values()), second.possibly_doubled) == (1, 1)


@pytest.mark.django_db
def test_run_ends_when_another_has_begun():
    first = Tally("h:1/v")
    Tally("h:1/v")
    with pytest.raises(AdoptionRefused, match="Another 'queues adopt' has begun"):
        first.begin(message(), plan(message()))


@pytest.mark.parametrize(
    ("body", "headers", "why"),
    [
        ("{", {}, "its body cannot be decoded: JSONDecodeError"),
        ("[1]", {}, "not a list of args, kwargs and embed"),
        ("[1, {}, {}]", {}, "not a list of args, kwargs and embed"),
        (b"\xff", {}, "its body cannot be decoded"),
        (
            b"\x00\x00",
            {"compression": "application/x-gzip"},
            "its body cannot be decompressed: its compressed body is damaged",
        ),
        (zlib.compress(b"1" * 2000), {"compression": "application/x-gzip"}, "more than 1000 bytes when decompressed"),
        ("1" * 1001, {}, "its body is too large"),
        (b"x", {"compression": "application/zstd"}, "application/zstd is not accepted"),
    ],
)
def test_body_that_cannot_be_read_says_why(body: Any, headers: dict[str, str], why: str):
    with pytest.raises(CannotRun, match=why):
        message(body, **headers).decoded(1000)


def test_arguments_are_named_by_the_old_parameters():
    assert by_name([1], {"b": 2}, ("a", "b")) == {"a": 1, "b": 2}
    for args, kwargs in (([1, 2, 3], {}), ([1], {"a": 2})):
        with pytest.raises(CannotRun, match="not those of its task"):
            by_name(args, kwargs, ("a", "b"))


@pytest.mark.parametrize(
    ("of", "outcome", "why"),
    [
        (message(task=None), Outcome.BURIED, "it is not a task message of Celery's protocol 2"),
        (message(task="other"), Outcome.BURIED, "no task of this name is known"),
        (message(expires="soon"), Outcome.BURIED, "a header is malformed"),
        (message(eta="soon"), Outcome.BURIED, "a header is malformed"),
        (message(eta=5), Outcome.BURIED, "a header is malformed"),
        (message(expires="2026-01-01T00:00:00"), Outcome.DROPPED, "it has expired; a worker would drop it as well"),
        (message(task="a\x00\ud800"), Outcome.BURIED, "no task of this name is known"),
        (message(), Outcome.RUNS, ""),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_message_outside_the_table_is_planned_by_its_name_and_headers(of: OldMessage, outcome: Outcome, why: str):
    found = plan(of)
    assert (found.outcome, found.why) == (outcome, why)


class KeepingSplit(Split):
    """Keeps what would be published."""

    def __init__(self) -> None:
        self.ran: list[Plan] = []
        self.buried: list[Plan] = []

    def run(self, message: OldMessage, plan: Plan) -> None:
        self.ran.append(plan)

    def bury(self, message: OldMessage, plan: Plan) -> None:
        self.buried.append(plan)


def nested(*_: Any) -> dict[str, Any]:
    raise RecursionError("maximum recursion depth exceeded")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (RunsAs("t", convert=nested), "its arguments are not those of its task"),
        (RunsAs("t", store=nested), "its arguments cannot be stored"),
    ],
    ids=["converted", "stored"],
)
def test_message_that_cannot_be_handled_is_buried_and_the_next_one_moves(entry: RunsAs, why: str):
    old, tally, split = OneQueue(), Tally("h:1/v"), KeepingSplit()
    Bridge(old, split, Planner(load({}), {"t": entry}, 1000, ("t",)), tally, lambda: None, Event()).run()
    assert old.left == 0
    assert [(plan.outcome, plan.why) for plan in split.buried] == [(Outcome.BURIED, why)]
    assert split.ran == []


def test_what_came_compressed_is_buried_compressed():
    body = zlib.compress(dumps([[], {"job_id": 1, "result_data": {"x": "y" * 100_000}}, {}]).encode())
    of = message(body, compression="application/x-gzip")
    call = Call({"job_id": 1, "result_data": {"x": "y" * 100_000}}, {}, RunsAs("t2"))
    content, headers = _content(of, Plan(Outcome.BURIED, "t", runs_as="t2", call=call))
    assert len(content) < 1000
    assert decompress(content, headers["compression"]) == dumps([[], call.arguments, {}]).encode()


@pytest.mark.parametrize("given", [URL, "", "a s3cret", "s3cret-url"])
def test_what_is_not_a_name_is_refused_and_not_repeated(given: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "ami.audit")
    with pytest.raises(CommandError, match="takes the name of a variable") as refused:
        call_command("queues", "adopt", "--from-env", given)
    assert refused.value.returncode == 2
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in caplog.text
    assert "queues adopt" in caplog.text


@pytest.mark.parametrize(
    "value", ["redis://:s3cret@h", "s3cret", "amqp://", "amqp://h:s3cret@x:port/v", f"{URL};http://s3cret"]
)
def test_value_that_is_no_url_of_rabbitmq_is_refused_and_not_repeated(value: str):
    with pytest.raises(WrongSource, match="OLD is not a URL of RabbitMQ") as refused:
        read_url("OLD", {"OLD": value})
    assert "s3cret" not in str(refused.value)


def test_url_comes_from_the_variable_or_from_its_file(tmp_path: Any):
    path = tmp_path / "url"
    path.write_text(f"{URL}\n")
    assert read_url("OLD", {"OLD": URL}) == URL
    for name in ("OLD", "OLD_FILE"):
        assert read_url(name, {"OLD_FILE": str(path)}) == URL
    with pytest.raises(WrongSource, match="both set"):
        read_url("OLD", {"OLD": URL, "OLD_FILE": str(path)})
    with pytest.raises(WrongSource, match="is not set here"):
        read_url("OLD", {})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.django_db
@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "piped"])
def test_progress_is_one_line_on_a_terminal_and_lines_when_piped(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    clock = itertools.count(0, 11)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    progress, tally = command.Progress(stream), Tally("h:1/v")
    for task_id in ("1", "2"):
        tally.done(message(task_id=task_id), plan(message()))
        progress.moved(tally)
    progress.notice("Trying again in 1 s.")
    lines = ["1 messages: 1 run, 0 dropped, 0 dead letters; 0/s", "2 messages: 2 run, 0 dropped, 0 dead letters; 0/s"]
    if stream.isatty():
        assert stream.getvalue() == "".join(f"\r{line}\x1b[K" for line in lines) + "\nTrying again in 1 s.\n"
    else:
        assert stream.getvalue().splitlines() == [*lines, "Trying again in 1 s."]


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "ten", "1e9"])
def test_wrong_silence_is_refused(minutes: str):
    with pytest.raises(CommandError, match="is not a number of minutes"):
        call_command("queues", "adopt", "--from-env", "OLD", "--follow", "--silent-minutes", minutes)


def test_dry_run_and_follow_exclude_each_other():
    with pytest.raises(CommandError, match="not allowed with"):
        call_command("queues", "adopt", "--from-env", "OLD", "--follow", "--dry-run")


class OneQueue(OldBroker):
    """An old broker with one message that is never acknowledged in vain."""

    def __init__(self) -> None:
        self.left, self.reads = 1, 0

    def consumed(self) -> list[Any]:
        return [SimpleNamespace(name="antenna", messages=self.left)]

    def get(self, queue: str) -> OldMessage | None:
        self.reads += 1
        return message(redelivered=self.reads > 1) if self.left else None

    def acknowledge(self, message: OldMessage) -> None:
        self.left = 0


class Failing:
    """Fails as often as it is told to."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self, *_: Any) -> dict[str, Any]:
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        return {}


class FailingSplit(Split):
    """Fails so many times to publish."""

    def __init__(self, failures: int) -> None:
        self._fail = Failing(failures)

    def run(self, message: OldMessage, plan: Plan) -> None:
        self._fail()


@pytest.mark.django_db
@pytest.mark.sqlite
@pytest.mark.parametrize("publishing", [False, True], ids=["while storing", "while publishing"])
def test_message_whose_publish_fails_is_counted_once(publishing: bool):
    entry = RunsAs("t", store=Failing(0 if publishing else 3))
    planner = Planner(load({}), {"t": entry}, 1000, ("t",))
    old, tally, split = OneQueue(), Tally("h:1/v"), FailingSplit(3 if publishing else 0)
    for _ in range(3):
        before = sum(tally.run.values())
        with pytest.raises(OSError if publishing else StorageFailed, match="no space left on device"):
            Bridge(old, split, planner, tally, lambda: None, Event()).run()
        # So the pause before the next attempt grows.
        assert sum(tally.run.values()) == before
    Bridge(old, split, planner, tally, lambda: None, Event()).run()
    assert (sum(tally.run.values()), sum(tally.counts.values())) == (1, 1)
    assert tally.possibly_doubled == tally.run_possibly_doubled == int(publishing)
    stored = Tally("h:1/v")
    assert (sum(stored.counts.values()), stored.possibly_doubled) == (1, int(publishing))


@pytest.mark.django_db
def test_names_that_are_not_known_are_counted_as_one():
    tally = Tally("h:1/v")
    for number in range(3):
        strange = message(task=f"unknown.{number}")
        tally.done(strange, plan(strange))
    assert list(tally.counts.values()) == [3]


@pytest.mark.parametrize("query", ["x=y", "hostname=s3cret", "login_method=s3cret"])
def test_url_with_an_unknown_query_is_refused_and_not_repeated(query: str, app: Any):
    with pytest.raises(WrongSource, match="OLD has a query") as refused:
        OldBroker(f"{URL.replace('@rabbitmq:5672', '@127.0.0.1:1')}?{query}", "OLD").__enter__()
    assert "s3cret" not in str(refused.value)


def test_url_as_a_queue_is_refused_and_not_repeated():
    with pytest.raises(CommandError, match="name of a queue, not a URL") as refused:
        call_command("queues", "adopt", "--from-env", "OLD", "--queue", URL)
    assert "s3cret" not in str(refused.value)


def test_variable_that_does_not_exist_is_not_repeated(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "ami.audit")
    with pytest.raises(CommandError, match="is not set here") as refused:
        call_command("queues", "adopt", "--from-env", "hunter2")
    assert refused.value.returncode == 2
    assert "hunter2" not in f"{refused.value}{caplog.text}"


def test_silence_without_following_is_refused():
    with pytest.raises(CommandError, match="needs --follow") as refused:
        call_command("queues", "adopt", "--from-env", "OLD", "--silent-minutes", "5")
    assert refused.value.returncode == 2
