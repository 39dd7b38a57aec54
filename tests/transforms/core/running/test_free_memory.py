"""Memory that was freed goes back, whoever gave it."""

from pathlib import Path

import pytest

from deploykit.hardware import allocators
from deploykit.transforms.core.running.child import call
from deploykit.transforms.core.running.free_memory import give_back

_PIECES, _BYTES = 2000, 50_000  # each below what the C library takes from the kernel by itself


def freed(gives_back: bool) -> int:
    """Return how many bytes are still in use after many pieces were freed below a last one."""
    pieces = [bytes(_BYTES) for _ in range(_PIECES)]
    before = resident()
    last = pieces[-1]
    del pieces
    if gives_back:
        give_back()
    assert len(last) == _BYTES
    return before - resident()


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError("the kernel does not tell")


@pytest.mark.parametrize("allocator", ["glibc", "tcmalloc"])
def test_most_of_it_goes_back(allocator):
    forced = {"LD_PRELOAD": None, "MALLOC_TRIM_THRESHOLD_": "4000000000",
              "TCMALLOC_RELEASE_RATE": "0"}  # fmt: skip
    if allocator == "tcmalloc":
        if allocators.lacking("tcmalloc"):
            pytest.skip(allocators.lacking("tcmalloc"))
        forced |= allocators.variables("tcmalloc", {})
    name = f"{__name__}:freed"
    kept, back = (call(name, gives_back, forced=forced) for gives_back in (False, True))
    assert back > 0.8 * _PIECES * _BYTES
    assert kept < 0.5 * _PIECES * _BYTES
