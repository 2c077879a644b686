"""How busy the processors are: the host's, and the container's share of its quota."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ami.governor.probes.cpu import LEAST_SECONDS, WINDOW_SECONDS, Cpu
from tests.support.governor.proc_trees import CPU_V1, UNIFIED, host, member, write

#: Where a process is, and the files of its quota: name, a quota of 2 cores, and its use in seconds.
V2 = ("0::/pod/worker", UNIFIED.format(root="/"), "sys/fs/cgroup")
V1 = ("5:cpu,cpuacct:/pod/worker", CPU_V1, "sys/fs/cgroup/cpu")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with 2 processors, whose ticks are hundredths of a second."""
    member(host(tmp_path), "0::/")
    return tmp_path


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now=1000.0)


@pytest.fixture
def cpu(root: Path, clock: SimpleNamespace) -> Cpu:
    return Cpu(root, clock=lambda: clock.now)


def ticks(root: Path, *columns: int) -> None:
    write(root, "proc/stat", f"cpu  {' '.join(map(str, columns))}\ncpu0 1 2 3")


def quota(root: Path, kind: tuple[str, str, str], folder: str, cores: float | None, seconds: float) -> None:
    """Write the quota and the use of one cgroup."""
    at = f"{kind[2]}/{folder}"
    if kind is V2:
        write(root, f"{at}/cpu.max", "max 100000" if cores is None else f"{int(cores * 100_000)} 100000")
        write(root, f"{at}/cpu.stat", f"usage_usec {int(seconds * 1e6)}\nuser_usec 1\nsystem_usec 1")
        return
    write(root, f"{at}/cpu.cfs_quota_us", -1 if cores is None else int(cores * 100_000))
    write(root, f"{at}/cpu.cfs_period_us", 100_000)
    write(root, f"{at}/cpuacct.usage", int(seconds * 1e9))


def test_nothing_is_known_in_the_first_ten_seconds(root: Path, cpu: Cpu, clock: SimpleNamespace):
    for passed in (0, 0.1, LEAST_SECONDS - 0.1):
        clock.now = 1000 + passed
        assert cpu.percent() is None
    clock.now = 1000 + LEAST_SECONDS
    # 400 ticks on: 50 user, 50 system, 200 idle, 60 waiting for a disk, 40 taken by the hypervisor.
    ticks(root, 150, 0, 150, 900, 160, 0, 0, 40, 30, 0)
    assert cpu.percent() == ("host", 35)


def test_a_spike_counts_as_its_share_of_the_window(root: Path, cpu: Cpu, clock: SimpleNamespace):
    idle = busy = 0
    shown = []
    for look in range(12):
        ticks(root, busy, 0, 0, idle, 0)
        shown.append(cpu.percent())
        clock.now += 5
        busy, idle = (busy + 1000, idle) if look == 5 else (busy, idle + 1000)
    assert [round(each[1]) for each in shown if each] == [0, 0, 0, 0, 33, 33, 33, 0, 0, 0]


def test_looks_that_are_further_apart_than_the_window_compare_two(root: Path, cpu: Cpu, clock: SimpleNamespace):
    cpu.percent()
    for busy, percent in ((3000, 100), (3000, 0)):
        clock.now += 2 * WINDOW_SECONDS
        ticks(root, 100 + busy, 0, 100, 700 + (3000 if percent == 0 else 0), 100)
        assert cpu.percent() == ("host", percent)


def test_a_disk_wait_that_runs_backwards_stays_within_bounds(root: Path, cpu: Cpu, clock: SimpleNamespace):
    cpu.percent()
    clock.now += WINDOW_SECONDS
    ticks(root, 150, 0, 100, 700, 90)
    assert cpu.percent() == ("host", 100)


def test_no_time_between_two_looks_is_none(cpu: Cpu, clock: SimpleNamespace):
    cpu.percent()
    clock.now += WINDOW_SECONDS
    assert cpu.percent() is None


@pytest.mark.parametrize("kind", [V2, V1], ids=["v2", "v1"])
@pytest.mark.parametrize(
    ("own", "above", "used", "percent"),
    [(2, None, 15, 50), (2, None, 31, 100), (0.5, None, 6, 80), (None, 4, 15, 25), (2, 1, 12, 80)],
)
def test_a_container_is_as_busy_as_its_quota(root: Path, clock: SimpleNamespace, kind, own, above, used, percent):
    member(root, kind[0], mounts=[kind[1]])
    quota(root, kind, "pod/worker", own, 100)
    quota(root, kind, "pod", above, 500)
    cpu = Cpu(root, clock=lambda: clock.now)
    cpu.percent()
    clock.now += 15
    quota(root, kind, "pod/worker", own, 100 + used)
    quota(root, kind, "pod", above, 500 + used)
    ticks(root, 110, 0, 100, 790, 100)
    assert cpu.percent() == ("container", pytest.approx(percent))


@pytest.mark.parametrize("kind", [V2, V1], ids=["v2", "v1"])
def test_without_a_quota_the_host_counts(root: Path, clock: SimpleNamespace, kind):
    member(root, kind[0], mounts=[kind[1]])
    quota(root, kind, "pod/worker", None, 100)
    cpu = Cpu(root, clock=lambda: clock.now)
    cpu.percent()
    clock.now += 15
    quota(root, kind, "pod/worker", None, 130)
    ticks(root, 110, 0, 100, 790, 100)
    assert cpu.percent() == ("host", 10)


@pytest.mark.parametrize("text", ["", "cpu0 1 2 3 4 5", "cpu 1 2", "cpu a b c d e f"])
def test_a_broken_stat_file_is_an_error_and_the_next_look_is_a_first(
    root: Path, cpu: Cpu, clock: SimpleNamespace, text: str
):
    cpu.percent()
    clock.now += WINDOW_SECONDS
    write(root, "proc/stat", text)
    with pytest.raises(ValueError):
        cpu.percent()
    host(root)
    assert cpu.percent() is None


@pytest.mark.parametrize("text", ["lots", "lots 100000", "5"])
def test_a_broken_quota_is_an_error_that_names_it(root: Path, cpu: Cpu, text: str):
    member(root, V2[0], mounts=[V2[1]])
    path = write(root, "sys/fs/cgroup/pod/worker/cpu.max", text)
    with pytest.raises(ValueError, match="not a quota and a period") as refused:
        cpu.percent()
    assert str(path) in str(refused.value)


def test_this_machines_processors_show_a_percent(clock: SimpleNamespace):
    cpu = Cpu(clock=lambda: clock.now)
    cpu.percent()
    clock.now += WINDOW_SECONDS
    found = cpu.percent()
    assert found is None or 0 <= found[1] <= 100  # None: not one tick has passed.
