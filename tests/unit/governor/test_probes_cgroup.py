"""What a process may use of its cgroup's memory, on every arrangement of cgroups that containers meet."""

import pytest

from ami.governor.probes.cgroup import Cgroup
from tests.support.governor.proc_trees import (
    CPU_V1,
    MEMORY_V1,
    MIB,
    UNIFIED,
    UNIFIED_OF_HYBRID,
    host,
    member,
    v1,
    v2,
    write,
)


@pytest.fixture
def root(tmp_path):
    return host(tmp_path)


@pytest.fixture
def unified(root):
    """A v2 host, the process in /app.slice/worker."""
    member(root, "0::/app.slice/worker", mounts=[UNIFIED.format(root="/")])
    return root


@pytest.fixture
def legacy(root):
    """A v1 host, the process in /docker/worker."""
    member(root, "3:cpu,cpuacct:/", "4:memory:/docker/worker", mounts=[CPU_V1, MEMORY_V1.format(root="/")])
    v1(root, "")
    return root


def test_v2_gives_what_is_used_of_the_limit_without_page_cache(unified):
    folder = v2(unified, "app.slice/worker", 512 * MIB)

    cgroup = Cgroup(unified)

    assert cgroup.memory() == (100 * MIB, 512 * MIB)
    assert (cgroup.version, cgroup.path) == (2, folder)


def test_v2_takes_high_when_it_is_below_max(unified):
    v2(unified, "app.slice/worker", 512 * MIB, high=400 * MIB)

    assert Cgroup(unified).memory() == (100 * MIB, 400 * MIB)


def test_v2_without_any_limit_gives_none(unified):
    v2(unified, "app.slice/worker")
    v2(unified, "app.slice")

    assert Cgroup(unified).memory() is None


@pytest.mark.parametrize("limit", [4096 * MIB, 9000 * MIB])
def test_a_limit_that_is_not_below_the_hosts_memory_is_none(unified, limit):
    v2(unified, "app.slice/worker", limit)

    assert Cgroup(unified).memory() is None


def test_v2_uses_an_ancestor_with_a_smaller_limit(unified):
    v2(unified, "app.slice/worker", 512 * MIB, anon=100 * MIB)
    v2(unified, "app.slice", 300 * MIB, anon=250 * MIB)

    assert Cgroup(unified).memory() == (250 * MIB, 300 * MIB)


def test_a_fuller_ancestor_with_a_larger_limit_counts(unified):
    v2(unified, "app.slice/worker", 512 * MIB, anon=100 * MIB)
    v2(unified, "app.slice", 1000 * MIB, anon=950 * MIB)

    assert Cgroup(unified).memory() == (950 * MIB, 1000 * MIB)


def test_a_cgroup_without_memory_control_takes_its_ancestors_limit(unified):
    v2(unified, "app.slice", 300 * MIB)
    (unified / "sys/fs/cgroup/app.slice/worker").mkdir()

    assert Cgroup(unified).memory() == (100 * MIB, 300 * MIB)


def test_v2_counts_what_the_kernel_cannot_drop_and_not_what_it_can(unified):
    v2(unified, "app.slice/worker", 512 * MIB, slab_unreclaimable=5 * MIB, kernel_stack=MIB, pagetables=2 * MIB)

    assert Cgroup(unified).memory() == (108 * MIB, 512 * MIB)


def test_locked_pages_and_tmpfs_count_once(unified):
    # 100 MiB anonymous of which 60 are locked, and 40 MiB of tmpfs: the lists, not the types, add up to 140.
    lists = {"inactive_anon": 80 * MIB, "unevictable": 60 * MIB, "shmem": 40 * MIB}
    v2(unified, "app.slice/worker", 512 * MIB, anon=100 * MIB, **lists)

    assert Cgroup(unified).memory() == (140 * MIB, 512 * MIB)


def test_a_resize_shows_at_the_next_question(unified):
    cgroup = Cgroup(unified)
    v2(unified, "app.slice/worker", 512 * MIB)
    before = cgroup.memory()
    v2(unified, "app.slice/worker", 1024 * MIB)

    assert (before, cgroup.memory()) == ((100 * MIB, 512 * MIB), (100 * MIB, 1024 * MIB))


def test_a_process_that_is_moved_is_followed(unified):
    cgroup = Cgroup(unified)
    v2(unified, "app.slice/worker", 512 * MIB)
    v2(unified, "other", 256 * MIB, anon=9 * MIB)
    cgroup.memory()
    write(unified, "proc/self/cgroup", "0::/other")

    assert cgroup.memory() == (9 * MIB, 256 * MIB)


def test_a_limit_of_nothing_is_full(unified):
    v2(unified, "app.slice/worker", 512 * MIB, high=0)

    used, limit = Cgroup(unified).memory()

    assert used > limit


def test_another_process_is_asked_about_by_its_pid(unified):
    member(unified, "0::/other", mounts=[UNIFIED.format(root="/")], pid=77)
    v2(unified, "other", 64 * MIB, anon=MIB)

    assert Cgroup(unified, pid=77).memory() == (MIB, 64 * MIB)


@pytest.mark.parametrize(
    ("path", "mounted"),
    [
        ("/", "/"),  # A cgroup namespace of its own: the usual container.
        ("/docker/abc", "/docker/abc"),  # The host's names, and mountinfo says which part is mounted.
        ("/kubepods/pod1/abc", "/"),  # The host's names, and a mount that does not say so.
        ("/../other", "/"),  # Outside of the namespace that is seen from here.
        ("/", "/../.."),  # The mount is older than the namespace.
    ],
)
def test_in_a_container_the_mount_itself_is_the_cgroup(root, path, mounted):
    member(root, f"0::{path}", mounts=[UNIFIED.format(root=mounted)])
    folder = v2(root, "", 512 * MIB)

    assert Cgroup(root).memory() == (100 * MIB, 512 * MIB)
    assert Cgroup(root).path == folder


def test_a_cgroup_below_the_mounted_part_is_found_there(root):
    member(root, "0::/docker/abc/inner", mounts=[UNIFIED.format(root="/docker/abc")])
    v2(root, "", 512 * MIB)
    v2(root, "inner", 256 * MIB)

    assert Cgroup(root).memory() == (100 * MIB, 256 * MIB)


def test_a_neighbour_with_the_same_prefix_is_not_the_mounted_one(root):
    member(root, "0::/docker/abcdef", mounts=[UNIFIED.format(root="/docker/abc")])
    v2(root, "", 512 * MIB)
    v2(root, "def", 64 * MIB)

    assert Cgroup(root).memory() == (100 * MIB, 512 * MIB)


def test_of_two_mounts_the_one_that_shows_the_ancestors_is_taken(root):
    narrow = "50 23 0:26 /app.slice/worker /mnt/own rw - cgroup2 cgroup2 rw"
    member(root, "0::/app.slice/worker", mounts=[narrow, UNIFIED.format(root="/")])
    (root / "mnt/own").mkdir(parents=True)
    v2(root, "app.slice/worker", 512 * MIB)
    v2(root, "app.slice", 200 * MIB)

    assert Cgroup(root).memory() == (100 * MIB, 200 * MIB)


def test_a_mount_point_with_a_space_is_found(root):
    mount = r"30 23 0:26 / /sys/fs/cgroup/my\040groups rw - cgroup2 cgroup2 rw"
    member(root, "0::/worker", mounts=[mount])
    v2(root, "my groups/worker", 512 * MIB)

    assert Cgroup(root).memory() == (100 * MIB, 512 * MIB)


def test_v1_counts_the_whole_hierarchy_without_page_cache(legacy):
    folder = v1(legacy, "docker/worker", 512 * MIB, 512 * MIB)

    cgroup = Cgroup(legacy)

    assert cgroup.memory() == (100 * MIB, 512 * MIB)
    assert (cgroup.version, cgroup.path) == (1, folder)


def test_v1_without_a_limit_gives_none(legacy):
    v1(legacy, "docker/worker")

    assert Cgroup(legacy).memory() is None


def test_v1_takes_an_ancestor_with_a_smaller_limit(legacy):
    v1(legacy, "docker/worker", 512 * MIB, 300 * MIB)
    v1(legacy, "docker", 300 * MIB, 300 * MIB, anon=280 * MIB)

    assert Cgroup(legacy).memory() == (280 * MIB, 300 * MIB)


def test_v1_ignores_an_ancestor_that_does_not_rule_those_below_it(legacy):
    v1(legacy, "docker/worker", 512 * MIB, 512 * MIB)
    v1(legacy, "docker", 300 * MIB, 300 * MIB)

    assert Cgroup(legacy).memory() == (100 * MIB, 512 * MIB)


def test_v1_in_a_container_knows_a_limit_set_above_what_it_sees(root):
    member(root, "4:memory:/kubepods/pod1/abc", mounts=[MEMORY_V1.format(root="/kubepods/pod1/abc")])
    v1(root, "", hierarchical=256 * MIB)

    assert Cgroup(root).memory() == (100 * MIB, 256 * MIB)


def test_a_hybrid_host_is_read_where_the_memory_controller_is(root):
    mounts = [UNIFIED_OF_HYBRID, MEMORY_V1.format(root="/")]
    member(root, "9:name=systemd:/", "4:memory:/worker", "0::/worker", mounts=mounts)
    v1(root, "worker", 512 * MIB, 512 * MIB)
    v2(root, "unified/worker", 128 * MIB)

    cgroup = Cgroup(root)

    assert (cgroup.version, cgroup.memory()) == (1, (100 * MIB, 512 * MIB))


def test_a_kernel_without_memory_control_gives_none(root):
    member(root, "9:name=systemd:/", "0::/worker", mounts=[UNIFIED.format(root="/")])
    write(root, "sys/fs/cgroup/worker/cgroup.procs", 1)

    assert Cgroup(root).memory() is None


def test_a_kernel_without_cgroups_gives_none(root):
    (root / "proc/self").mkdir()

    cgroup = Cgroup(root)

    assert (cgroup.memory(), cgroup.version, cgroup.path) == (None, None, None)


def test_a_container_that_mounts_no_cgroups_gives_none(root):
    member(root, "0::/")

    assert Cgroup(root).memory() is None


def test_a_process_that_has_ended_is_an_error(root):
    with pytest.raises(FileNotFoundError):
        Cgroup(root, pid=4711).memory()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("sys/fs/cgroup/app.slice/worker/memory.max", "lots", "contains 'lots'"),
        ("sys/fs/cgroup/app.slice/worker/memory.max", "", "contains ''"),
        ("sys/fs/cgroup/app.slice/worker/memory.stat", "anon 5", "has no inactive_anon"),
        ("sys/fs/cgroup/app.slice/worker/memory.stat", "anon much", "not a name and a number"),
        ("proc/self/cgroup", "0:/", "not ID:CONTROLLERS:PATH"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(unified, name, text, said):
    v2(unified, "app.slice/worker", 512 * MIB)
    path = write(unified, name, text)

    with pytest.raises(ValueError, match=said) as refused:
        Cgroup(unified).memory()
    assert str(path) in str(refused.value)


def test_the_cgroup_of_this_very_process_can_be_read():
    cgroup = Cgroup()

    memory = cgroup.memory()

    assert cgroup.path is None or cgroup.path.is_dir()
    assert memory is None or min(memory) > 0
