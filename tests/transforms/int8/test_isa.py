"""What the kernel of Linux tells of the processor, and who sums in 32 bits."""

import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8 import int8_kernels
from deploykit.transforms.int8.int8_kernels import flags, sums_exactly
from tests.support import raises

INFO = (
    "processor\t: 0\nmodel name\t: Any\nflags\t\t: fpu avx2 {}\n\nprocessor\t: 1\nflags\t\t: fpu\n"
)


@pytest.mark.parametrize(
    ("more", "exact"), [("", False), ("avx512_vnni", True), ("avx_vnni", True), ("amx_int8", True)]
)
def test_flags(more, exact, tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    path.write_text(INFO.format(more))
    found = flags(path)
    assert found == {"fpu", "avx2", *more.split()}
    monkeypatch.setattr(int8_kernels, "flags", lambda: found)
    assert sums_exactly("auto") is exact


def test_no_such_file(tmp_path):
    assert flags(tmp_path / "none") == frozenset()
    (tmp_path / "other").write_text("nothing of it\n")
    assert flags(tmp_path / "other") == frozenset()


def test_what_was_asked_for_wins():
    assert sums_exactly("vnni")
    assert not sums_exactly("avx2")
    with raises(GraphError, "not-one-of", what="isa", got="sse"):
        sums_exactly("sse")
