"""A damaged record is passed over alone: the others keep their numbers, whichever byte was hit."""

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.transforms.common.errors import VerificationError
from deploykit.transforms.ir import tfrecord
from deploykit.transforms.ir.tfrecord import DamagedRecord, framed, read_all_records, read_records
from tests.support import raises


def made_up(count: int, seed: int = 0) -> list[bytes]:
    """Return records of all kinds: empty, of zeros, and with other records inside."""
    chance = random.Random(seed)
    kinds = (
        lambda: b"",
        lambda: bytes(chance.randrange(40)),
        lambda: chance.randbytes(chance.randrange(300)),
        lambda: b"\0" * 4 + chance.randbytes(9),
    )
    return [chance.choice(kinds)() for _ in range(count)]


def hit(content: bytes, place: int, mask: int = 0x41) -> bytes:
    changed = bytearray(content)
    changed[place] ^= mask
    return bytes(changed)


def frames(records: list[bytes]) -> list[int]:
    """Return where each record begins, and the end."""
    found = [0]
    for each in records:
        found.append(found[-1] + len(framed(each)))
    return found


def whole(path: Path, content: bytes, count: int, compressed: bool = False):
    path.write_bytes(content)
    return list(read_all_records(path, compressed, count))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(5))
def test_any_byte_of_any_record(tmp_path, seed):
    records = made_up(12, seed)
    content = b"".join(map(framed, records))
    begins = frames(records)
    for place in range(len(content)):
        struck = max(n for n in range(12) if begins[n] <= place)
        found = whole(tmp_path / "f", hit(content, place), 12)
        assert [n for n, each in enumerate(found) if isinstance(each, DamagedRecord)] == [struck]
        assert [each for each in found if isinstance(each, bytes)] == [
            each for n, each in enumerate(records) if n != struck
        ]


@settings(max_examples=200)
@given(st.data())
def test_no_record_gets_the_number_of_another(tmp_path_factory, data):
    records = made_up(data.draw(st.integers(1, 30)), data.draw(st.integers(0, 99)))
    content = b"".join(map(framed, records))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=5)):
        content = hit(content, place, data.draw(st.integers(1, 255)))
    try:
        found = whole(tmp_path_factory.mktemp("r") / "f", content, len(records))
    except VerificationError:  # it cannot be told
        return
    assert len(found) == len(records)
    for ours, theirs in zip(found, records, strict=True):
        assert isinstance(ours, DamagedRecord) or ours == theirs


@pytest.mark.parametrize("seed", range(3))
def test_of_a_compressed_file_what_was_read_before_is_kept(tmp_path, seed):
    records = made_up(40, seed)
    packed = gzip.compress(b"".join(map(framed, records)), mtime=0)
    lost = 0
    for place in range(20, len(packed) - 8, 29):
        found = whole(tmp_path / "f", hit(packed, place), 40, compressed=True)
        assert len(found) == 40
        sound = [n for n, each in enumerate(found) if isinstance(each, bytes)]
        assert all(found[n] == records[n] for n in sound)
        lost += 40 - len(sound)
    assert lost


def test_a_sound_file_is_read_as_ever(tmp_path):
    records = made_up(50)
    content = b"".join(map(framed, records))
    assert (
        whole(tmp_path / "f", content, 50) == records == list(read_records(tmp_path / "f", False))
    )
    packed = whole(tmp_path / "g", gzip.compress(content), 50, compressed=True)
    assert packed == records
    assert whole(tmp_path / "h", b"", 0) == []


@pytest.mark.parametrize("count", [0, 9, 11, 99])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_of_another_number_of_records_is_refused(tmp_path, count, compressed):
    content = b"".join(map(framed, made_up(10)))
    with raises(VerificationError, "tfrecord-order", count=count):
        whole(tmp_path / "f", gzip.compress(content) if compressed else content, count, compressed)


def test_what_stands_behind_the_last_record_is_refused(tmp_path):
    content = b"".join(map(framed, made_up(10)))
    with raises(VerificationError, "tfrecord-order", number=10, count=10):
        whole(tmp_path / "f", content + b"more", 10)


def test_the_check_sees_a_reader_that_loses_count(tmp_path, monkeypatch):
    right = tfrecord._lost
    monkeypatch.setattr(tfrecord, "_lost", lambda *given: min(right(*given), 1))
    records = [b"x" * 50] * 6
    begins = frames(records)
    content = hit(hit(b"".join(map(framed, records)), begins[2] + 1), begins[3] + 1)
    with pytest.raises(VerificationError):
        whole(tmp_path / "f", content, 6)
