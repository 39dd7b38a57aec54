"""Memory that was freed goes back, whoever gave it."""

import ctypes
import threading
from pathlib import Path

import pytest

from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.memory import give_back, keep_less

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


TCMALLOC = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError("the kernel does not tell")


@pytest.mark.sampled
@pytest.mark.usefixtures("started_children")  # which need no TensorFlow here
@pytest.mark.parametrize("allocator", ["glibc", pytest.param("tcmalloc", marks=pytest.mark.slow)])
def test_most_of_it_goes_back(allocator):
    forced = {"LD_PRELOAD": None, "MALLOC_TRIM_THRESHOLD_": "4000000000",
              "TCMALLOC_RELEASE_RATE": "0"}  # fmt: skip
    if allocator == "tcmalloc":
        if not TCMALLOC.exists():
            pytest.skip(f"no {TCMALLOC}")
        forced["LD_PRELOAD"] = str(TCMALLOC)
    name = f"{__name__}:freed"
    kept, back = (call(name, gives_back, forced=forced) for gives_back in (False, True))
    assert back > 0.8 * _PIECES * _BYTES
    assert kept < 0.5 * _PIECES * _BYTES


def arenas(most: int) -> int:
    """Return how many arenas of glibc 12 threads have that all hold memory at once."""
    if most:
        keep_less(most)
    barrier = threading.Barrier(12)

    def hold() -> None:
        held = [bytes(5000) for _ in range(100)]
        barrier.wait()
        del held

    threads = [threading.Thread(target=hold) for _ in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    library = ctypes.CDLL(None)
    library.open_memstream.restype = ctypes.c_void_p
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    stream = ctypes.c_void_p(library.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    library.malloc_info(0, stream)
    library.fclose(stream)
    return text.value.count(b"<heap nr=")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "limited"), [({}, True), ({"MALLOC_ARENA_MAX": "7"}, False)]
)
def test_arenas_are_limited_unless_the_user_says_how_many(environment, limited):
    forced = {"LD_PRELOAD": None, "GLIBC_TUNABLES": None, "MALLOC_ARENA_MAX": None, **environment}
    name = f"{__name__}:arenas"
    free, bound = (call(name, most, forced=forced) for most in (0, 3))
    assert free > 3
    assert bound == (3 if limited else free)
