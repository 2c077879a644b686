"""How long each finding lasts before it is an alert, and which findings a look cannot show."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Where a finding comes from: while that cannot be asked, its alerts stay as they are.
BROKER, MANAGEMENT, WORKERS, ROWS, BEAT, REDIS = "broker", "management", "workers", "rows", "beat", "redis"
NATS, BUCKET, PROMISES, ALERTS, ALWAYS = "NATS", "bucket", "promises", "alerts", "always"

PROBLEMS, ERRORS, UNSEEN, NEVER = ("error", "warning"), ("error",), ("unseen",), ()


@dataclass(frozen=True)
class Rule:
    """``after_seconds`` is how long it lasts; ``levels`` are those of which it is an alert at all."""

    source: str
    after_seconds: float
    levels: tuple[str, ...] = PROBLEMS


#: What lies there; letters-new says what comes. Where letters are not collected, `of` lets these alert.
LYING = ("dead-letters", "unrouted")
SILENT = ("policies", "management", "several-queues", "no-limits", "drift", "redis-unbounded", "redis-lost", *LYING)
#: Advice, and counts since a start, alert as errors only or never: no operator resolves them at night.
RULES: Mapping[str, Rule] = {
    "alarm": Rule(MANAGEMENT, 15),
    "blocked": Rule(MANAGEMENT, 60),
    "broker-unreachable": Rule(ALWAYS, 30),
    "storage": Rule(ALWAYS, 30),
    "nats-away": Rule(NATS, 30),
    "bucket": Rule(BUCKET, 60),
    "calls-unsent": Rule(ROWS, 30),
    "worker-state": Rule(ROWS, 30),
    "no-beat": Rule(BEAT, 30),
    "letters-new": Rule(ROWS, 30),
    "no-consumer": Rule(BROKER, 60),
    "missing-queue": Rule(BROKER, 60),
    "lost-binding": Rule(MANAGEMENT, 60),
    "no-worker": Rule(ALWAYS, 60),
    "all-held": Rule(WORKERS, 60),
    "promise-broken": Rule(PROMISES, 60),
    "unaccounted": Rule(ROWS, 60),
    "arguments": Rule(MANAGEMENT, 60),
    "letters-grow": Rule(ROWS, 60),
    "letters-back": Rule(ROWS, 60),
    "redis": Rule(REDIS, 60),
    "restarts": Rule(WORKERS, 60),
    "kernel-kills": Rule(WORKERS, 60),
    "alert-receiver": Rule(ALERTS, 60),
    "late-tick": Rule(BEAT, 120),
    "held": Rule(WORKERS, 300),
    "fingerprint": Rule(WORKERS, 300),
    "foreign-worker": Rule(WORKERS, 300),
    "stranded-calls": Rule(WORKERS, 300),
    "suspect": Rule(WORKERS, 300),
    "withheld-tick": Rule(BEAT, 300),
    "set-aside": Rule(ROWS, 300),
    "redis-memory": Rule(REDIS, 300),
    "source": Rule(ALWAYS, 300, (*UNSEEN, *ERRORS)),
    "database": Rule(ALWAYS, 300),
    "paused": Rule(ROWS, 600),
    "parked": Rule(ROWS, 600),
    "disabled": Rule(ROWS, 600),
    "unknown-queue": Rule(MANAGEMENT, 600),
    "probe": Rule(WORKERS, 600),
    "version": Rule(MANAGEMENT, 300, ERRORS),
    "redis-policy": Rule(REDIS, 300, ERRORS),
    "redis-disk": Rule(REDIS, 300, ERRORS),
    **dict.fromkeys(SILENT, Rule(BROKER, 300, NEVER)),
}
#: A finding of a newer version, while processes of two run.
UNKNOWN = Rule(ALWAYS, 60)

#: By name and level: the sources that were not asked when a look shows it, and the findings that it does not deny.
HIDES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("broker-unreachable", "error"): (BROKER, MANAGEMENT, WORKERS, PROMISES, REDIS),
    ("storage", "error"): (BROKER, MANAGEMENT, WORKERS, PROMISES, REDIS),
    ("no-worker", "error"): (WORKERS,),
    ("no-worker", "unseen"): (WORKERS, "no-worker"),
    ("no-worker", "starting"): (WORKERS, "no-worker"),
    ("no-consumer", "starting"): ("no-consumer",),
    ("no-beat", "starting"): (BEAT,),
    ("management", "unseen"): (MANAGEMENT,),
    ("management", "error"): (MANAGEMENT,),
    ("database", "error"): (ROWS, BEAT, WORKERS, BROKER, PROMISES, ALERTS),
    ("redis", "error"): (REDIS,),
    ("redis", "unseen"): (REDIS,),
}


def of(name: str, *, collects_letters: bool = True) -> Rule:
    """Return a finding's rule."""
    rule = RULES.get(name, UNKNOWN)
    return Rule(rule.source, rule.after_seconds) if name in LYING and not collects_letters else rule


def hidden(found: Iterable[tuple[str, str, str]]) -> frozenset[str]:
    """Return what a look did not see, sources and findings, from the names, levels and targets of its findings."""
    unseen: set[str] = set()
    for name, level, target in found:
        unseen.update(HIDES.get((name, level), ()))
        if name == "source":
            unseen.add(target)
    return frozenset(unseen)
