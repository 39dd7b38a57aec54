"""The default memory limit follows what the machine has available and what its cgroups leave."""

import pytest

from deploykit.transforms.runtime import memory as module
from deploykit.transforms.runtime.memory import available_memory

GIB = 1 << 30
V1 = ("memory/", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
V2 = ("", "memory.max", "memory.current", "")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Write the files of a machine with 8 GiB available, in these cgroups."""

    def write(groups=None):
        (tmp_path / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {8 * GIB >> 10} kB\n")
        if groups is not None:
            (tmp_path / "groups").write_text(groups)
        monkeypatch.setattr(module, "_MACHINE", tmp_path / "meminfo")
        monkeypatch.setattr(module, "_GROUPS", tmp_path / "groups")
        monkeypatch.setattr(module, "_MOUNT", tmp_path)

    return write


def limit(tmp_path, version, path, most, used, cached=0):
    folder, limit, usage, prefix = version
    group = tmp_path / folder / path
    group.mkdir(parents=True, exist_ok=True)
    (group / limit).write_text(f"{most}\n")
    (group / usage).write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"{prefix}inactive_file {cached}\n{prefix}active_file 0\n")


def test_without_cgroups_it_is_what_the_machine_has_available(machine):
    machine()
    assert available_memory() == 8 * GIB


def test_without_proc_it_is_what_the_machine_has(machine, tmp_path):
    machine()
    (tmp_path / "meminfo").unlink()
    assert available_memory() > 0


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize(
    ("most", "used", "cached", "left"),
    [
        (4 * GIB, GIB, 0, 3 * GIB),
        (4 * GIB, 3 * GIB, 2 * GIB, 3 * GIB),  # the kernel drops what it caches of files
        (4 * GIB, 5 * GIB, 0, 0),
        (64 * GIB, GIB, 0, 8 * GIB),
        ("max", GIB, 0, 8 * GIB),
        (1 << 63, GIB, 0, 8 * GIB),
    ],
)
# The cgroup of the process, the one above it, and the mount of a container.
@pytest.mark.parametrize("path", ["a/b", "a", ""])
def test_a_cgroup_leaves_less(version, most, used, cached, left, path, machine, tmp_path):
    controllers = "5:memory" if version is V1 else "0:"
    machine(f"3:cpu:/other\n{controllers}:/a/b\n")
    limit(tmp_path, version, path, most, used, cached)
    assert available_memory() == left
