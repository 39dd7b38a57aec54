"""What is read of the machine agrees with what others say of it."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

import deploykit.system.machine as machine_module
from deploykit.system.machine import _cpu as cpu
from deploykit.system.machine import cgroup_limits, environment, machine, usable_cores


def test_this_machine():
    found = machine()
    assert found["cpus"] == os.cpu_count()
    assert found["affinity"] == sorted(os.sched_getaffinity(0))
    assert found["cpu"]
    assert 1 <= (found["cores"] or 1) <= found["cpus"]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["memory_bytes"] == pytest.approx(pages, rel=0.05)
    assert 0 < found["memory_available_bytes"] < found["memory_bytes"]
    assert len(found["load"]) == 3
    assert found["versions"]["numpy"] == np.__version__
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["tensorflow"].startswith("2.")


def test_the_flags_are_those_that_numpy_finds():
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    features = {*simd["baseline"], *simd.get("found", ())}
    flags = {
        "avx2": {"AVX2", "X86_V3"},
        "fma": {"FMA3", "X86_V3"},
        "avx512f": {"AVX512F", "X86_V4"},
    }
    for flag, names in flags.items():  # newer versions of NumPy name the levels only
        assert flag in machine()["flags"] or not features & names


def test_no_tensorflow():
    code = "import sys, deploykit.system.machine as m; m.machine(); "
    code += "sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_environment(monkeypatch):
    for name in environment():
        monkeypatch.delenv(name)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("A_PASSWORD", "secret")
    assert environment() == {"OMP_NUM_THREADS": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}


def limits(tmp_path, own: str, files: dict[str, str]):
    """Write what a kernel shows, and return what is read of it."""
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    found = cgroup_limits(tmp_path / "root", tmp_path / "own")
    return found["cpus"], found["bytes"]


V1 = "4:memory:/a/b\n2:cpuacct,cpu:/a/b\n0::/\n"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b\n", {}, (None, None)),
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000", "a/b/memory.max": "4096"}, (1.5, 4096)),
        # the group above allows less
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, (0.5, None)),
        ("0::/a/b\n", {"a/b/memory.max": "8192", "memory.max": "4096"}, (None, 4096)),
        # a container sees the host's path, and its own group as the root
        ("0::/a/b\n", {"cpu.max": "200000 100000", "memory.max": "max"}, (2.0, None)),
        (V1, {"cpu/a/b/cpu.cfs_quota_us": "-1",
              "memory/a/b/memory.limit_in_bytes": "9223372036854771712"}, (None, None)),
        (V1, {"cpu/a/cpu.cfs_quota_us": "150000", "cpu/a/cpu.cfs_period_us": "50000",
              "memory/a/b/memory.limit_in_bytes": "4096"}, (3.0, 4096)),
        ("", {}, (None, None)),
    ],
)  # fmt: skip
def test_limits_of_control_groups(tmp_path, own, files, expected):
    assert limits(tmp_path, own, files) == expected


@pytest.mark.parametrize(("quota", "expected"), [(None, 3), (0.5, 1), (1.5, 2), (8.0, 3)])
def test_usable_cores_follow_affinity_and_quota(monkeypatch, quota, expected):
    monkeypatch.setattr(machine_module.os, "sched_getaffinity", lambda pid: {0, 1, 5})
    monkeypatch.setattr(machine_module, "cgroup_limits", lambda: {"cpus": quota, "bytes": None})
    assert usable_cores() == expected


def test_cores_are_not_threads(tmp_path):
    block = "model name\t: Some CPU\nphysical id\t: {}\ncore id\t: {}\nflags\t: fpu avx2 fma\n"
    path = tmp_path / "cpuinfo"
    path.write_text("\n".join(block.format(p, c) for p in (0, 1) for c in (0, 1, 0, 1)))
    assert cpu(path) == {"model": "Some CPU", "cores": 4, "flags": ["avx2", "fma"]}


def test_a_cpu_of_another_kind(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n")
    found = cpu(path)
    assert found["model"]
    assert (found["cores"], found["flags"]) == (None, ["asimd", "asimddp", "i8mm"])
