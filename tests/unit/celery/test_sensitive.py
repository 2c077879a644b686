"""The values of arguments that a task declares sensitive are shown nowhere; its message's body has them."""

import json
from typing import Any

import pytest
from celery import shared_task
from celery.exceptions import Retry

from ami.celery import sensitive
from ami.celery.failures import in_child, spool
from ami.celery.failures.spool import Spool
from ami.queues.publish import publish_many
from tests.support.brokers import celery_at

SECRET = "canary-0f8fad5b"


@shared_task(name="tests.sensitive", sensitive=("token", "rest"))
def task(station: int, token: str = "", *rest: str, note: str = "") -> None:
    raise ValueError(f"{token} is refused")


@shared_task(name="tests.plain")
def plain(token: str) -> None: ...


@pytest.fixture
def app() -> Any:
    from config import celery_app as made

    return made


@pytest.mark.parametrize(
    ("args", "kwargs", "shown"),
    [
        ((1, SECRET), {"note": "x"}, ([1, "********"], {"note": "x"})),
        ((1,), {"token": SECRET}, ([1], {"token": "********"})),
        ((1, SECRET, SECRET, SECRET), {}, ([1, "********", "********", "********"], {})),
        ((), {}, ([], {})),
    ],
)
def test_arguments_are_masked_by_name_wherever_they_stand(app: Any, args: Any, kwargs: Any, shown: Any):
    assert sensitive.masked(app, task.name, args, kwargs) == shown
    assert sensitive.masked(app, "tests.plain", args, kwargs) is None
    assert sensitive.masked(app, "tests.unknown", args, kwargs) is None


def published(app: Any) -> Any:
    with app.connection_for_read() as connection, connection.channel() as channel:
        return channel.message_to_python(channel.basic_get("antenna"))


@pytest.mark.parametrize("how", ["delay", "many", "retry"])
def test_published_representations_are_masked_and_the_body_is_not(app: Any, how: str):
    with celery_at("objectstore+memory://sensitive"):
        app.declare_everything()
        if how == "delay":
            task.apply_async((7, SECRET), queue="antenna")
        elif how == "many":
            publish_many([task.s(7, SECRET).set(queue="antenna")])
        else:
            task.push_request(id="an-id", args=(7, SECRET), kwargs={}, called_directly=False, retries=0)
            try:
                with pytest.raises(Retry) as raised:
                    task.retry(exc=ValueError(f"no {SECRET}"))
            finally:
                task.pop_request()
            assert SECRET not in str(raised.value)
        message = published(app)
        assert SECRET not in json.dumps(dict(message.headers))
        assert message.headers["argsrepr"] == "(7, '********')"
        assert message.payload[0] == [7, SECRET]


def test_error_and_its_record_do_not_tell_the_value(app: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spool, "_spool", Spool(tmp_path))
    task.push_request(id="an-id", args=(7, SECRET), kwargs={}, called_directly=False, is_eager=False, retries=0)
    try:
        with pytest.raises(ValueError, match="is refused") as raised:
            task(7, SECRET)
        in_child.keep(task, task.request, raised.value, "error")
    finally:
        task.pop_request()
    assert str(raised.value) == "******** is refused"
    assert SECRET not in "".join(path.read_text() for path in tmp_path.iterdir())


class Told(Exception):
    """Its text is not among its arguments."""

    def __str__(self) -> str:
        return f"told {SECRET}"


def test_record_masks_a_text_that_the_error_makes_itself(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    kept = Spool(tmp_path)
    monkeypatch.setattr(spool, "_spool", kept)
    task.push_request(id="an-id", args=(7,), kwargs={"token": SECRET}, called_directly=False, is_eager=False, retries=0)
    try:
        in_child.keep(task, task.request, Told(), "error")
    finally:
        task.pop_request()
    ((_, failure),) = kept.read(10)
    assert failure is not None
    assert failure.message == "told ********"
    assert SECRET not in failure.traceback


def test_values_in_lists_and_mappings_count_and_short_ones_do_not():
    assert sensitive.values(task, (1, {"key": [SECRET, "abc"]}), {}) == [SECRET]
    assert sensitive.values(plain, (SECRET,), {}) == []


def test_secret_in_deeply_nested_arguments_is_found():
    deep: Any = SECRET
    for level in range(900):
        deep = [deep] if level % 2 else {"a": deep}
    assert sensitive.values(task, [1, deep], {}) == [SECRET]
    deep = [SECRET]
    deep.append(deep)
    assert sensitive.values(task, [1, deep], {}) == [SECRET]
