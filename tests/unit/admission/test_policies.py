"""What a task may declare, and by which arguments its calls are one."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from celery import current_app, shared_task
from kombu.utils import json

from ami.admission import groups, keys, rates
from ami.admission.checks import check_policies, check_task
from ami.admission.policies import GroupBy, InOrder, Permits, Policy, PolicyRefused, Rate, Unique, policy_of
from ami.queues.tasks import load_tasks


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Unique(on_conflict="replace"), "use 'reschedule_once', or until='until_executing'"),
        (lambda: Unique(until="until_executing", on_conflict="reschedule_once"), "use 'replace'"),
        (lambda: Unique(until="recently"), "seconds"),
        (lambda: Unique(seconds=3), "leave one of them out"),
        (lambda: Unique(by="deployment_id"), "give the names of arguments"),  # type: ignore[arg-type]
        (lambda: Unique(on_conflict="ignore"), "drop, replace, reschedule_once, raise"),
        (lambda: GroupBy("key", 1, {}), "as a tuple"),  # type: ignore[arg-type]
        (lambda: GroupBy(("key",), 1, {"ids": "sum"}), "list, set, last"),
        (lambda: GroupBy(("key",), 1, {"key": "list"}), "which is equal in a group"),
        (lambda: GroupBy(("key",), 0, {}), "above 0"),
        (lambda: InOrder(()), "as a tuple"),
        (lambda: InOrder(("key",), on_failure="retry"), "stop, skip"),
        (lambda: Permits(0), "a whole number of 1 or more"),
        (lambda: Rate(1, per_seconds=0), "above 0"),
    ],
)
def test_contradicting_policy_is_refused_with_the_remedy(make: Any, sentence: str):
    with pytest.raises(PolicyRefused, match="Unique|Permits|Rate|GroupBy|InOrder") as refused:
        make()
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"outbox": True}, []),
        ({"unique": Unique(), "ignore_result": True}, []),
        ({"unique": Unique()}, ["admission.E005"]),
        ({"unique": Unique(by=("kye",)), "ignore_result": True}, ["admission.E003"]),
        ({"permits": 4}, ["admission.E002"]),
        ({"debounce": "key", "outbox": True}, ["admission.E001"]),
        ({"group_by": "key", "outbox": True}, ["admission.E002"]),
        ({"in_order_by": InOrder(("key",))}, []),
        ({"in_order_by": InOrder(("kye",))}, ["admission.E003"]),
        ({"group_by": GroupBy(("key",), 1, {})}, ["admission.E005"]),
        ({"unique": Unique(), "in_order_by": InOrder(("key",)), "ignore_result": True}, ["admission.E008"]),
        ({"outbox": True, "acks_late": False}, ["admission.E004"]),
        ({"outbox": True, "fence_by": "key"}, ["admission.E006"]),
    ],
)
def test_check_names_what_contradicts_a_policy(app: Any, options: dict[str, Any], found: list[str]):
    def work(key: str = "") -> None: ...

    task = app._task_from_fun(work, name="tests.checked", **{"ignore_result": False, **options})
    try:
        messages = list(check_task(task))
    finally:
        app.tasks.pop("tests.checked")
    assert [message.id for message in messages] == found
    assert all(message.hint for message in messages)
    assert "Did you mean 'key'?" in "".join(message.msg for message in messages if message.id == "admission.E003") or (
        "admission.E003" not in found
    )


BY_KEY, GROUPED = Unique(by=("key",)), GroupBy(("key",), 1, {"token": "last"})


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"unique": BY_KEY, "fair_by": "project"}, {"admission.E009": ["project"]}),
        ({"unique": BY_KEY, "permits": Permits(2, per="project")}, {"admission.E009": ["project"]}),
        ({"unique": BY_KEY, "permits": Permits(2, cost="size")}, {"admission.E009": ["size"]}),
        ({"group_by": GROUPED, "rate": Rate(1, 1, per="size")}, {"admission.E009": ["size"]}),
        (
            {"group_by": GROUPED, "rate": Rate(1, 1, per="project"), "fair_by": "size"},
            {"admission.E009": ["project", "size"]},
        ),
        ({"unique": Unique(by=("key", "project")), "fair_by": "project"}, {}),
        ({"unique": BY_KEY, "permits": Permits(2, per="key"), "fair_by": "key"}, {}),
        ({"unique": BY_KEY, "permits": Permits(2)}, {}),
        ({"in_order_by": InOrder(("key",)), "fair_by": "project"}, {}),
        ({"unique": Unique(by=("key", "token"))}, {"admission.E010": ["token"]}),
        ({"unique": Unique(), "sensitive": ("token", "secret")}, {"admission.E010": ["secret", "token"]}),
        ({"in_order_by": InOrder(("token",))}, {"admission.E010": ["token"]}),
        ({"fair_by": "token"}, {"admission.E010": ["token"]}),
        ({"permits": Permits(2, per="token")}, {"admission.E010": ["token"]}),
        ({"rate": Rate(1, 1, per="token")}, {"admission.E010": ["token"]}),
        ({"permits": Permits(2, cost="token")}, {"admission.E010": ["token"]}),
        ({"unique": Unique(), "sensitive": ()}, {}),
        ({"group_by": GROUPED}, {}),
        ({"outbox": True}, {}),
    ],
)
def test_check_names_arguments_that_a_key_lacks_or_would_show(
    app: Any, options: dict[str, Any], found: dict[str, list[str]]
):
    def work(key: str, project: int, size: int, token: str, secret: str = "") -> None: ...

    task = app._task_from_fun(work, name="tests.checked", **{"ignore_result": True, "sensitive": ("token",), **options})
    try:
        messages = list(check_task(task))
    finally:
        app.tasks.pop("tests.checked")
    named: dict[str, list[str]] = {}
    for message in messages:
        named.setdefault(str(message.id), []).append(message.msg.split("'")[1])
        assert message.hint
    assert named == found


def test_argument_that_is_sensitive_in_every_task_is_in_no_key(app: Any, monkeypatch: pytest.MonkeyPatch):
    def work(key: str) -> None: ...

    monkeypatch.setattr("ami.celery.sensitive._everywhere", frozenset({"key"}))
    task = app._task_from_fun(work, name="tests.checked", unique=Unique(), ignore_result=True)
    try:
        assert [message.id for message in check_task(task)] == ["admission.E010"]
    finally:
        app.tasks.pop("tests.checked")


def test_tasks_of_the_product_contradict_no_policy():
    load_tasks()
    assert [message for message in check_policies() if message.msg.startswith("ami.")] == []
    assert any(policy_of(task) for task in current_app.tasks.values())


@shared_task(name="tests.keyed")
def keyed(first: int, second: Any = None, *rest: int, third: str = "x") -> None: ...


def text(*args: Any, by: tuple[str, ...] | None = None, **kwargs: Any) -> str:
    return keys.key_text(keyed, Policy(Unique(by=by)), keys.arguments(keyed, args, kwargs))


def test_key_is_the_same_however_the_call_is_written():
    assert text(1, 2) == text(1, second=2) == text(first=1, second=2, third="x")
    assert text(1, {"b": [1, (2,)], "a": None}) == text(1, {"a": None, "b": [1, [2]]})
    assert len({text(1), text("1"), text(1, 2), text(1, None, 3), text(1, third="y")}) == 5
    assert text(1, 2, by=("second",)) == text(9, 2, third="y", by=("second",))


MOMENT = datetime(2026, 11, 29, 1, 2, 3, 450000, tzinfo=UTC)
HEX = "6f9619ff8b86d011b42d00c04fc964ff"


@pytest.mark.parametrize(
    "value",
    [
        UUID(HEX),
        date(2026, 11, 29),
        MOMENT,
        MOMENT.replace(tzinfo=None),
        MOMENT.replace(tzinfo=timezone(timedelta(hours=2))),
        time(1, 2, 3),
        Decimal("1.50"),
        {"at": [MOMENT, (UUID(HEX),)], "__type__": 1},
        {"__type__": "uuid", "__value__": {"hex": HEX.upper()}},
    ],
)
def test_key_is_that_of_the_value_that_comes_back_from_json(value: Any):
    [[_, back]] = json.loads(json.dumps([[1, value]]))
    again = json.loads(json.dumps(back))
    assert text(1, value) == text(1, back) == text(1, again)
    assert text(1, value) != text(1, str(value))


def test_group_takes_each_value_once_whatever_its_type():
    group = GroupBy(("key",), 1, {"ids": "set"})
    given = [{"key": 1, "ids": [UUID(HEX), MOMENT, {"a": Decimal(1)}]}, {"key": 1, "ids": [UUID(HEX), HEX]}]
    assert groups.merged(group, given)["ids"] == [UUID(HEX), MOMENT, {"a": Decimal(1)}, HEX]


def test_keys_of_equal_texts_and_other_types_differ():
    values = [UUID(HEX), HEX, date(2026, 11, 29), MOMENT, "2026-11-29", Decimal("1"), 1, "1"]
    assert len({text(1, value) for value in values}) == len(values)


def test_fair_key_names_its_argument():
    policy = Policy(fair_by="second")
    for value, shown in ((7, "second=7"), ("a b", 'second="a b"'), (None, "second=null")):
        assert keys.fair_key(keyed, policy, {"second": value}) == shown
    assert len(keys.fair_key(keyed, policy, {"second": "x" * 300})) == keys.LONGEST


def nested(depth: int, is_list: bool = True) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if is_list else {"a": value}
    return value


def test_argument_nested_too_deeply_is_refused_by_name():
    assert "[" * 100 in text(1, nested(100))
    for deep in (nested(101), nested(900), nested(101, is_list=False), nested(5000)):
        with pytest.raises(keys.ArgumentRefused, match="'second', which .* nested deeper than 100 levels"):
            text(1, deep)


@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2}, b"x", {1, 2}, {"__type__": "no", "__value__": 1}])
def test_argument_that_is_not_json_is_refused_by_name(value: Any):
    with pytest.raises(keys.ArgumentRefused, match="'second'"):
        text(1, value)


def test_missing_argument_is_refused_by_name():
    with pytest.raises(keys.ArgumentRefused, match="'fourth'"):
        text(1, by=("fourth",))
    with pytest.raises(keys.ArgumentRefused, match="first"):
        text(second=1)


def test_long_keys_differ_by_their_digest():
    long, other = keys.shortened("a" * 300 + "b"), keys.shortened("a" * 300 + "c")
    assert long != other
    assert len(long) == len(other) == keys.LONGEST
    assert keys.shortened("a" * 255) == "a" * 255


def test_rate_is_evenly_spaced_and_saves_up_one_burst_alone():
    rate, arrival, sent = Rate(10, per_seconds=1, burst=3), 0.0, []
    for tick in range(300):
        now = 1000 + tick / 100
        while (following := rates.next_arrival(rate, arrival, now)) is not None:
            arrival = following
            sent.append(now)
    assert sent[:3] == [1000.0] * 3
    assert len(sent) == 32
    gaps = [later - earlier for earlier, later in zip(sent[3:], sent[4:], strict=False)]
    assert min(gaps) >= 0.09


def test_task_without_a_policy_has_none():
    assert policy_of(keyed) is None
