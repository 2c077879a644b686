"""When a finding becomes an alert, is sent again and is over: by a clock that the test sets."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.telemetry.alerts import policy, rules
from ami.telemetry.alerts.policy import Event, Key, Patience
from ami.telemetry.models import Alert
from ami.telemetry.snapshots.shape import FindingFigures as Seen

BEGAN = datetime(2026, 6, 1, 22, tzinfo=UTC)
INTERVAL, QUIET = 60, 5  # Seconds; looks after the first one without it.
FOUR_HOURS = timedelta(hours=4)
NAME, QUEUE = "no-consumer", "antenna-ingest"  # It lasts 60 s.
SEEN = Seen("error", NAME, "antenna-ingest has no consumer.", QUEUE)
HELD = Seen("warning", "held", "ingest@a is held.", "ingest@a")  # 300 s.


class Watch:
    """Looks each minute, and keeps what is sent with the second in which it is."""

    def __init__(self, repeat: timedelta | None = FOUR_HOURS, factor: float = 1.0) -> None:
        self.alerts: dict[Key, Alert] = {}
        self.sent: list[tuple[int, str, str]] = []
        self.seconds, self._patience = 0, Patience(repeat, factor)

    def look(self, *found: Seen, looks: int = 1) -> None:
        hidden = rules.hidden((each.name, each.level, each.target) for each in found)
        for _ in range(looks):
            now = BEGAN + timedelta(seconds=self.seconds)
            for alert, event in policy.changes(dict(self.alerts), policy.seen(found), hidden, now, self._patience):
                self.alerts[alert.key] = alert
                if event in {Event.FORGOTTEN, Event.RESOLVED}:
                    del self.alerts[alert.key]
                if event not in {Event.FORGOTTEN, Event.CHANGED}:
                    self.sent.append((self.seconds, str(event), alert.target))
            self.seconds += INTERVAL

    @property
    def events(self) -> list[str]:
        return [event for _, event, _ in self.sent]


def test_finding_fires_once_after_its_duration():
    watch = Watch()
    watch.look(SEEN, HELD, looks=10)
    assert watch.sent == [(60, "firing", QUEUE), (300, "firing", HELD.target)]


def test_deploy_sends_nothing_and_leaves_nothing():
    watch = Watch()
    watch.look(SEEN, HELD)
    watch.look(HELD, looks=3)
    watch.look(looks=3)
    assert (watch.sent, watch.alerts) == ([], {})


def test_one_missed_look_does_not_begin_the_duration_again():
    watch = Watch()
    watch.look(HELD, looks=4)
    watch.look()
    watch.look(HELD)
    assert watch.sent == [(300, "firing", HELD.target)]


def test_alert_is_over_after_five_quiet_minutes_as_of_the_first():
    watch = Watch()
    watch.look(SEEN, looks=2)
    alert = watch.alerts[SEEN.name, QUEUE]
    watch.look(looks=QUIET)
    assert watch.events == ["firing"]
    watch.look()
    assert watch.sent[-1] == (420, "resolved", QUEUE)
    assert alert.resolved_at == BEGAN + timedelta(seconds=120)


def test_alert_that_flaps_within_five_minutes_is_one():
    watch = Watch(repeat=None)
    for _ in range(10):
        watch.look(SEEN, looks=2)
        watch.look(looks=QUIET)
    assert watch.events == ["firing"]
    watch.look()
    assert watch.events == ["firing", "resolved"]


@pytest.mark.parametrize(("repeat", "at"), [(FOUR_HOURS, [60, 60 + 4 * 3600, 60 + 8 * 3600]), (None, [60])])
def test_alert_is_repeated_every_four_hours_or_never(repeat, at):
    watch = Watch(repeat)
    watch.look(SEEN, looks=9 * 60)
    assert [seconds for seconds, _, _ in watch.sent] == at
    assert watch.events == ["firing", "repeat", "repeat"][: len(at)]


def test_alert_that_becomes_an_error_is_sent_again_at_once():
    watch = Watch()
    watch.look(Seen("warning", "worker-state", "It is stale.", "ingest@a"), looks=2)
    watch.look(Seen("error", "worker-state", "It is dead.", "ingest@a"))
    assert watch.events == ["firing", "repeat"]
    assert watch.alerts["worker-state", "ingest@a"].sentence == "It is dead."


def test_alerts_of_a_source_that_was_not_seen_stay_as_they_are():
    watch = Watch()
    watch.look(SEEN, looks=2)
    watch.look(Seen("error", "broker-unreachable", "The broker does not answer."), looks=20)
    assert watch.events == ["firing", "firing"]
    watch.look(looks=QUIET + 1)
    assert watch.events == ["firing", "firing", "resolved", "resolved"]


def test_source_that_failed_hides_its_own_findings_alone():
    assert rules.hidden([("source", "unseen", "NATS")]) == {"NATS"}
    assert rules.RULES["nats-away"].source in rules.hidden([("source", "unseen", "NATS")])


def test_alert_stays_while_the_deployment_is_starting():
    names = ("no-worker", "no-consumer", "no-beat")
    watch = Watch()
    watch.look(*(Seen("error", name, "None.") for name in names), looks=2)
    watch.look(*(Seen("starting", name, "Starting: None.") for name in names), looks=9)
    assert watch.events == ["firing"] * 3
    watch.look(looks=QUIET + 1)
    assert watch.events == ["firing"] * 3 + ["resolved"] * 3


def test_factor_shortens_durations_and_the_quiet_time():
    watch = Watch(factor=0.2)
    watch.look(HELD, looks=2)
    watch.look(looks=2)
    assert watch.sent == [(60, "firing", HELD.target), (180, "resolved", HELD.target)]


def test_many_targets_are_one_alert():
    many = [Seen("error", "worker-state", f"ingest@{number} is dead.", f"ingest@{number}") for number in range(30)]
    watch = Watch()
    watch.look(*many[:3], looks=2)
    watch.look(*many, looks=2)
    assert [target for _, _, target in watch.sent] == ["ingest@0", "ingest@1", "ingest@2", ""]
    assert watch.alerts["worker-state", ""].sentence.startswith("30 of them: ingest@0 is dead.")


def test_advice_is_no_alert_and_its_error_is():
    watch = Watch()
    watch.look(Seen("warning", "version", "RabbitMQ 3.10 has no consumer timeout per queue."), looks=100)
    assert not watch.alerts
    watch.look(Seen("error", "version", "RabbitMQ is older than 3.10."), looks=6)
    assert watch.events == ["firing"]


def test_letters_that_lie_alert_only_where_none_are_collected():
    lying = Seen("warning", "dead-letters", "3 messages were buried.", "antenna.dlq")
    assert not policy.seen([lying])
    assert policy.seen([lying], collects_letters=False)


@given(st.lists(st.booleans(), max_size=300))
def test_events_of_an_alert_are_in_order_and_none_comes_early(looks):
    watch = Watch(repeat=None)
    for is_there in looks:
        watch.look(*[SEEN] if is_there else [])
    assert watch.events == (["firing", "resolved"] * len(looks))[: len(watch.events)]
    for seconds, event, _ in watch.sent:
        before = looks[: seconds // INTERVAL + 1]
        if event == "resolved":
            assert before[-QUIET - 1 :] == [False] * (QUIET + 1)
        else:
            assert before[-1]
            assert any(before[-3:-1])
