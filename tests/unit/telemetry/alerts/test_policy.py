"""When a finding becomes an alert, is sent again and is over: by a clock that the test sets."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ami.telemetry.alerts import policy, rules
from ami.telemetry.alerts.policy import Alert, Event, Key, Patience, Seen

BEGAN = datetime(2026, 6, 1, 22, tzinfo=UTC)
INTERVAL = 15
PATIENCE = Patience(timedelta(seconds=INTERVAL), timedelta(hours=4))
NAME, QUEUE = "no-consumer", "antenna-ingest"  # It lasts 60 s.
SEEN = Seen(NAME, QUEUE, "error", "antenna-ingest has no consumer.")


class Watch:
    """Looks every 15 s, and keeps what is sent with the second in which it is."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self.alerts: dict[Key, Alert] = {}
        self.sent: list[tuple[int, str, str]] = []
        self.seconds, self._patience = 0, patience

    def look(self, *found: Seen, looks: int = 1, hidden: frozenset[str] = frozenset()) -> None:
        for _ in range(looks):
            now = BEGAN + timedelta(seconds=self.seconds)
            for change in policy.changes(dict(self.alerts), policy.seen(found), hidden, now, self._patience):
                if change.after is None:
                    assert change.before is not None
                    del self.alerts[change.before.key]
                else:
                    self.alerts[change.after.key] = change.after
                if change.event:
                    known = change.after or change.before
                    assert known is not None
                    self.sent.append((self.seconds, str(change.event), known.target))
            self.seconds += INTERVAL

    @property
    def events(self) -> list[str]:
        return [event for _, event, _ in self.sent]


def test_finding_fires_once_after_its_duration():
    watch = Watch()
    watch.look(SEEN, looks=10)
    assert watch.sent == [(60, "firing", QUEUE)]


def test_short_blip_sends_nothing_and_leaves_nothing():
    watch = Watch()
    watch.look(SEEN, looks=4)
    watch.look(looks=3)
    assert (watch.sent, watch.alerts) == ([], {})


def test_one_missed_look_does_not_begin_the_duration_anew():
    watch = Watch()
    watch.look(SEEN, looks=2)
    watch.look()
    watch.look(SEEN, looks=2)
    assert watch.sent == [(60, "firing", QUEUE)]


def test_alert_is_over_at_the_second_look_without_it():
    watch = Watch()
    watch.look(SEEN, looks=5)
    watch.look()
    assert watch.events == ["firing"]
    watch.look()
    assert watch.sent[-1] == (90, "resolved", QUEUE)


def test_alert_is_repeated_every_four_hours():
    watch = Watch()
    watch.look(SEEN, looks=9 * 240)
    assert [(event, seconds) for seconds, event, _ in watch.sent] == [
        ("firing", 60),
        ("repeat", 60 + 4 * 3600),
        ("repeat", 60 + 8 * 3600),
    ]


def test_nothing_is_repeated_where_that_is_off():
    watch = Watch(Patience(PATIENCE.interval, None))
    watch.look(SEEN, looks=24 * 240)
    assert watch.events == ["firing"]


def test_alert_that_becomes_an_error_is_sent_again_at_once():
    watch = Watch()
    watch.look(Seen("worker-state", "ingest@a", "warning", "It is stale."), looks=5)
    watch.look(Seen("worker-state", "ingest@a", "error", "It is dead."))
    assert watch.events == ["firing", "repeat"]
    assert watch.alerts["worker-state", "ingest@a"].sentence == "It is dead."


def test_alerts_of_a_source_that_was_not_seen_stay_as_they_are():
    watch = Watch()
    watch.look(SEEN, looks=5)
    away = Seen("broker-unreachable", "", "error", "The broker does not answer.")
    hidden = rules.hidden([(away.name, away.level, away.target)])
    watch.look(away, looks=20, hidden=hidden)
    assert watch.events == ["firing", "firing"]
    watch.look(looks=2)
    assert watch.events == ["firing", "firing", "resolved", "resolved"]


def test_source_that_failed_hides_its_own_findings_alone():
    assert rules.hidden([("source", "unseen", "NATS")]) == {"NATS"}
    assert rules.RULES["nats-away"].source in rules.hidden([("source", "unseen", "NATS")])


def test_alert_stays_while_the_deployment_is_starting():
    names = ("no-worker", "no-consumer", "no-beat")
    watch = Watch()
    watch.look(*(Seen(name, "", "error", "None.") for name in names), looks=5)
    coming = [Seen(name, "", "starting", "Starting: None.") for name in names]
    watch.look(*coming, looks=6, hidden=rules.hidden((each.name, each.level, each.target) for each in coming))
    assert watch.events == ["firing"] * 3
    watch.look(looks=2)
    assert watch.events == ["firing"] * 3 + ["resolved"] * 3


def test_flapping_alert_is_sent_ever_more_rarely():
    watch = Watch(Patience(PATIENCE.interval, None))
    for _ in range(60):  # An hour and a half: 75 s there, 30 s gone.
        watch.look(SEEN, looks=5)
        watch.look(looks=2)
    assert watch.events == ["firing", "resolved", "firing"]
    watch.look(looks=3)
    assert watch.events == ["firing", "resolved", "firing", "resolved"]


def test_factor_shortens_durations():
    watch = Watch(Patience(PATIENCE.interval, None, factor=0.5))
    watch.look(SEEN, looks=5)
    assert watch.sent == [(30, "firing", QUEUE)]


def test_many_targets_are_one_alert():
    many = [Seen("worker-state", f"ingest@{number}", "error", f"ingest@{number} is dead.") for number in range(30)]
    watch = Watch()
    watch.look(*many[:3], looks=4)
    watch.look(*many, looks=4)
    assert [target for _, _, target in watch.sent] == ["ingest@0", "ingest@1", "ingest@2", ""]
    assert watch.alerts["worker-state", ""].sentence.startswith("30 of them: ingest@0 is dead.")


def test_advice_is_no_alert_and_its_error_is():
    advice = Seen("version", "", "warning", "RabbitMQ 3.10 has no consumer timeout per queue.")
    watch = Watch()
    watch.look(advice, looks=100)
    assert not watch.alerts
    watch.look(Seen("version", "", "error", "RabbitMQ is older than 3.10."), looks=21)
    assert watch.events == ["firing"]


def test_letters_that_lie_alert_only_where_none_are_collected():
    lying = Seen("dead-letters", "antenna.dlq", "warning", "3 messages were buried.")
    assert not policy.seen([lying])
    assert policy.seen([lying], collects_letters=False)


@given(st.lists(st.booleans(), max_size=300))
def test_events_of_an_alert_are_in_order_and_none_comes_early(looks):
    watch = Watch()
    for is_there in looks:
        watch.look(*[SEEN] if is_there else [])
    expected = [Event.FIRING, Event.RESOLVED]
    assert watch.events == [str(expected[number % 2]) for number in range(len(watch.sent))]
    for seconds, event, _ in watch.sent:
        before = looks[: seconds // INTERVAL + 1]
        if event == "firing":
            assert before[-1]
            assert not any(not one and not two for one, two in zip(before[-5:], before[-4:], strict=False))
        else:
            assert before[-2:] == [False, False]
