"""Inputs of the governor's pure tests: samples by percent, decision inputs, and gates after many checks."""

from collections.abc import Iterable

from hypothesis import strategies as st

from ami.governor.policy import DecisionInput, Gate, decide
from ami.governor.sample import Sample
from ami.governor.settings import GovernorSettings

GIB = 1024**3
#: One percent of it is one GiB, so that whole percents are exact.
LIMIT_BYTES = 100 * GIB
ONE_PERCENT_KIB = GIB // 1024


def sample(memory=None, swap=None, gpu=None, pressure=None, scope="container", cpu=None) -> Sample:
    used = None if memory is None else round(memory * GIB)
    own = {"swap_percent": swap, "gpu_percent": gpu, "pressure_percent": pressure, "cpu_percent": cpu}
    return Sample(used, LIMIT_BYTES, scope, **own)


def look(now, memory=None, *, swap=None, gpu=None, pressure=None, cpu=None, **rest) -> DecisionInput:
    return DecisionInput(
        sample(memory, swap, gpu, pressure, cpu=cpu), now=now, started_at=rest.pop("started_at", -1e6), **rest
    )


def drive(settings: GovernorSettings, looks: Iterable[DecisionInput], gate: Gate | None = None) -> list[Gate]:
    """Return the gate after each input."""
    gates, gate = [], gate or Gate()
    for inputs in looks:
        gate = decide(settings, gate, inputs)
        gates.append(gate)
    return gates


percents = st.one_of(st.none(), st.integers(0, 100), st.sampled_from([69, 70, 75, 79, 80, 81, 85, 89, 90, 91]))
samples = st.builds(sample, percents, percents, percents, st.one_of(percents, st.sampled_from([4, 5, 6, 19, 20, 21])))
#: Seconds between two checks.
pauses_between = st.one_of(st.floats(0.2, 20), st.sampled_from([5.0, 9.9, 10.0, 30.0, 299.0, 300.0]))


@st.composite
def governor_settings(draw) -> GovernorSettings:
    shortest = draw(st.sampled_from([0.0, 1.0, 10.0, 60.0]))
    return GovernorSettings(
        memory_min_hold_seconds=shortest,
        memory_max_hold_seconds=max(1.0, shortest) * draw(st.sampled_from([1, 3, 30])),
        memory_check_interval=draw(st.sampled_from([0.2, 5.0, 60.0])),
    )


@st.composite
def many_looks(draw, paused=False, **others) -> list[DecisionInput]:
    """Consecutive inputs; ``others`` are strategies of their further fields."""
    now, made = draw(st.floats(0, 1e6)), []
    for between in draw(st.lists(pauses_between, min_size=1, max_size=40)):
        now += between
        fields = {name: draw(strategy) for name, strategy in others.items()}
        is_paused = draw(st.booleans()) if paused else False
        made.append(DecisionInput(draw(samples), now=now, started_at=-1e6, paused=is_paused, **fields))
    return made
