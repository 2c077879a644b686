"""What a task may declare, and by which arguments its calls are one."""

from typing import Any

import pytest
from celery import shared_task

from ami.admission import keys, rates
from ami.admission.checks import check_task
from ami.admission.policies import GroupBy, InOrder, Permits, Policy, PolicyRefused, Rate, Unique, policy_of


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


@shared_task(name="tests.keyed")
def keyed(first: int, second: Any = None, *rest: int, third: str = "x") -> None: ...


def text(*args: Any, by: tuple[str, ...] | None = None, **kwargs: Any) -> str:
    return keys.key_text(keyed, Policy(Unique(by=by)), keys.arguments(keyed, args, kwargs))


def test_key_is_the_same_however_the_call_is_written():
    assert text(1, 2) == text(1, second=2) == text(first=1, second=2, third="x")
    assert text(1, {"b": [1, (2,)], "a": None}) == text(1, {"a": None, "b": [1, [2]]})
    assert len({text(1), text("1"), text(1, 2), text(1, None, 3), text(1, third="y")}) == 5
    assert text(1, 2, by=("second",)) == text(9, 2, third="y", by=("second",))


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


@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2}, b"x", {1, 2}])
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
