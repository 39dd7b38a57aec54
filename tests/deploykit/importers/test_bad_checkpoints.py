"""Checkpoints that anybody may have made: each is answered, or refused in one sentence.

The indexes are forged with right checksums, so that what they say is all that is wrong.
"""

import contextlib
import os
import random
import struct

import numpy as np
import pytest

import deploykit
from deploykit.importers.model_path import find_checkpoint
from deploykit.transforms.common.errors import CrashError, Error, FileError, GraphError
from deploykit.transforms.ir.protos import BundleEntryProto, BundleHeaderProto
from deploykit.transforms.ir.tfrecord import masked_crc
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.session import read_checkpoint
from deploykit.transforms.untrusted import checkpoint_index
from deploykit.transforms.untrusted.checkpoint_index import check_index, read_table
from tests.support import because, raises, tf

DATA = np.arange(16, dtype=np.float32).tobytes()  # of a [3, 4] and of b [4]
END = ".data-00000-of-00001"


def number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def block(entries, restarts=1, kind=b"\0", content=b"") -> bytes:
    content += b"".join(
        number(0) + number(len(key)) + number(len(value)) + key + value for key, value in entries
    )
    content += struct.pack("<II", 0, restarts) + kind
    return content + struct.pack("<I", masked_crc(content))


def table(entries, **wanted) -> bytes:
    """Write a table of one block anew."""
    blocks = [block(entries, **wanted), block([])]
    places = [number(0) + number(len(blocks[0]) - 5), number(len(blocks[0])) + number(8)]
    blocks.append(block([(b"\xff", places[0])]))
    places.append(number(sum(map(len, blocks[:2]))) + number(len(blocks[2]) - 5))
    return b"".join([*blocks, (places[1] + places[2]).ljust(40, b"\0")]) + struct.pack(
        "<Q", 0xDB4775248B80FB57
    )


def header(**fields) -> bytes:
    return BundleHeaderProto(
        **{"num_shards": 1, "version": {"producer": 1}} | fields
    ).SerializeToString()


def entry(shape=(3, 4), parts=(), **fields) -> bytes:
    found = BundleEntryProto(**{"dtype": 1, "offset": 0, "size": 48} | fields)
    found.shape.SetInParent()
    for size in shape:
        found.shape.dim.add(size=size)
    for part in parts:
        extents = found.slices.add().extent
        for start, length in part:
            extents.add(start=start, length=length)
    found.crc32c = masked_crc(DATA[max(found.offset, 0) :][: max(found.size, 0)])
    return found.SerializeToString()


B = entry((4,), offset=48, size=16)
C = (b"c", entry())  # the values of parts are in entries of their own


def written(folder, index, data=DATA) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "m.index").write_bytes(index)
    (folder / f"m{END}").write_bytes(data)
    return str(folder / "m")


def forged(a=None, head=None, more=()) -> bytes:
    first = header() if head is None else head
    return table([(b"", first), (b"a", entry() if a is None else a), (b"b", B), *more])


def test_a_forged_index_is_read_as_a_real_one(tmp_path):
    prefix = written(tmp_path, forged())
    check_index(prefix)
    read = read_checkpoint(prefix, {1: ("a", ""), 2: ("b", ""), 3: ("b", "")})
    np.testing.assert_array_equal(read[1], np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(read[2], np.arange(12, 16))
    assert read[2] is read[3]  # many that want one value take the room of one


@pytest.mark.slow
def test_real_indexes_of_many_blocks_are_sound(tmp_path):
    variables = {
        f"v{n}/{'long name ' * 9}": tf.Variable(np.full(3, n, np.int16)) for n in range(2000)
    }
    variables |= {"text": tf.Variable(["a", "bb"] * 9), "half": tf.Variable([1], dtype=tf.bfloat16)}
    prefix = tf.train.Checkpoint(**variables).write(str(tmp_path / "m"))
    reader = tf.train.load_checkpoint(prefix)
    found = [key.decode() for key, _ in read_table(f"{prefix}.index", "index")]
    assert found == ["", *sorted(reader.get_variable_to_shape_map(), key=str.encode)]
    check_index(prefix)


BAD = {
    "empty": b"",
    "no table": b"\0" * 5000,
    "cut": forged()[:-1],
    "no end": forged()[:100],
    "only an end": forged()[-48:],
    "restarts": table([(b"", header())], restarts=1 << 31),
    "compressed": table([(b"", header())], kind=b"\1"),
    "no header": table([(b"a", entry())]),
    "no entries": table([]),
    "a header that is none": forged(head=b"\xff\xff\xff"),
    "no shards": forged(head=header(num_shards=0)),
    "less than no shards": forged(head=header(num_shards=-1)),
    "2^30 shards": forged(head=header(num_shards=1 << 30)),
    "out of order": table([(b"", header()), (b"b", B), (b"a", entry())]),
    "twice": table([(b"", header()), (b"a", entry()), (b"a", entry())]),
    "an entry that is none": forged(b"\xff\xff\xff"),
    "an entry without a word": forged(b""),
    "2^40 values": forged(entry((1 << 40,))),
    "2^40 values that are said to be there": forged(entry((1 << 40,), size=1 << 42)),
    "a size that overflows": forged(entry((1 << 40, 1 << 40))),
    "a negative size": forged(entry((-3, -4))),
    "300 axes": forged(entry((1,) * 300)),
    "type 0": forged(entry(dtype=0)),
    "type 99": forged(entry(dtype=99)),
    "resources": forged(entry(dtype=20)),
    "doubles": forged(entry(dtype=2)),
    "2^33 texts": forged(entry((1 << 33,), dtype=7)),
    "before the data": forged(entry(offset=-8)),
    "behind the data": forged(entry(offset=1 << 50)),
    "negative bytes": forged(entry(size=-48)),
    "shard 9": forged(entry(shard_id=9)),
    "shard -1": forged(entry(shard_id=-1)),
    "bytes of another": table([(b"", header()), (b"a", entry()), (b"b", entry())]),
    "a part outside": forged(entry(parts=[[(0, 2), (3, 2)]]), more=[C]),
    "a negative part": forged(entry(parts=[[(0, 2), (-1, -2)]]), more=[C]),
    "a part of another rank": forged(entry(parts=[[(0, 1)]]), more=[C]),
    "a part larger than all": forged(entry((1 << 40,), parts=[[(0, 1)]])),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_indexes(kind, tmp_path):
    prefix = written(tmp_path, BAD[kind])
    with pytest.raises(GraphError) as found:
        check_index(prefix)
    assert str(found.value).startswith(f"{prefix}.index: ")
    assert len(str(found.value)) < len(prefix) + 200
    with pytest.raises(GraphError) as again:  # nothing of TensorFlow's comes before it
        read_checkpoint(prefix, {1: ("a", "")})
    assert str(again.value) == str(found.value)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["a negative size", "a size that overflows", "a negative part"])
def test_without_the_judgement_tensorflow_would_die(kind, tmp_path):
    prefix = written(tmp_path, BAD[kind])
    with (
        contextlib.closing(Worker(f"{__name__}:Unjudged")) as worker,
        raises(CrashError, "child-died", signal="SIGABRT"),
    ):
        worker.ask("read", prefix, {1: ("a", "")})


class Unjudged:
    """A reader that takes an index at its word."""

    def __init__(self) -> None:
        from deploykit.transforms.runtime import session

        session.check_index = lambda prefix: None

    read = staticmethod(read_checkpoint)


def test_names_that_unfold_take_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_index, "_MAX_KEYS", 1 << 20)
    longer = (number(1000 + n) + number(1) + number(0) + b"a" for n in range(3000))
    first = number(0) + number(1000) + number(0) + b"a" * 1000
    prefix = written(tmp_path, table([], content=first + b"".join(longer)))
    with raises(GraphError, "not-a", reason=because("names-unfold")):
        list(read_table(f"{prefix}.index", "index"))


@pytest.mark.sampled
def test_thousands_of_shards(tmp_path):
    count = 3000
    shards = [(b"%05d" % n, entry((4,), size=16, shard_id=n)) for n in range(count)]
    prefix = written(tmp_path, table([(b"", header(num_shards=count)), *shards]))
    (tmp_path / f"m{END}").unlink()
    for n in range(count):
        (tmp_path / f"m.data-{n:05}-of-{count:05}").write_bytes(DATA[:16])
    check_index(prefix)
    (tmp_path / f"m.data-01234-of-{count:05}").unlink()
    with pytest.raises(FileError, match=r"m.data-01234-of-03000: No such file"):
        check_index(prefix)


@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "folder", "cut", "other bytes"])
def test_data_files_that_are_none(kind, tmp_path):
    prefix = written(tmp_path, forged())
    data = tmp_path / f"m{END}"
    if kind in ("cut", "other bytes"):
        data.write_bytes(DATA[:-1] if kind == "cut" else bytes(64))
    else:
        data.unlink()
    if kind == "pipe":
        os.mkfifo(data)
    elif kind == "folder":
        data.mkdir()
    elif kind in ("device", "loop"):
        data.symlink_to("/dev/zero" if kind == "device" else data)
    expected = GraphError if kind in ("cut", "other bytes") else FileError
    with pytest.raises(expected) as found:
        read_checkpoint(prefix, {1: ("a", "")})
    assert "\n" not in str(found.value)


WANTED = {"a": ("a", ""), "b": ("b", ""), "part": ("a", "3 4 1,2:-")}


class Reader:
    """A process that reads one checkpoint after the other."""

    def read(self, prefix: str) -> str:
        """Return the class of what became of it."""
        try:
            read_checkpoint(prefix, WANTED)
        except Error as error:
            return type(error).__name__ if "\n" not in str(error) else "more than a sentence"
        return "read"


def damaged(rng: random.Random) -> tuple[bytes, bytes]:
    """Return an index and its data, of which one byte or several are others."""
    index, data = bytearray(forged()), bytearray(DATA)
    kind = rng.choice(["flip", "cut", "data", "forge", "forge", "forge", "forge"])
    if kind == "flip":
        index[rng.randrange(len(index))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del index[rng.randrange(len(index)) :]
    elif kind == "data":
        del data[rng.randrange(len(data)) :]
    else:
        parts = [[(0, 2), (0, 4)], [(2, 1), (0, 4)]]
        own = [bytearray(header()), bytearray(entry(parts=rng.choice([(), parts]))), bytearray(B)]
        for _ in range(rng.choice([1, 1, 3])):
            one = rng.choice(own)
            place = rng.randrange(len(one) or 1)
            new = [
                b"\xff" * 9 + b"\1",
                b"\x1a\x0b\x12\x09\x08" + b"\xff" * 6,
                rng.randbytes(4),
                b"\0",
            ]
            one[place : place + rng.randrange(4)] = rng.choice([*new, b""])
        index = bytearray(table(zip((b"", b"a", b"b"), map(bytes, own), strict=True)))
    return bytes(index), bytes(data)


@pytest.mark.sampled
def test_hundreds_of_damaged_checkpoints(tmp_path):
    rng = random.Random(1)
    became: dict[str, int] = {}
    with contextlib.closing(Worker(f"{__name__}:Reader")) as worker:
        for case in range(600):
            prefix = written(tmp_path / "case", *damaged(rng))
            try:
                end = worker.ask("read", prefix)
            except CrashError as error:
                pytest.fail(f"case {case}: {error}")
            became[end] = became.get(end, 0) + 1
    assert became.keys() <= {"read", "GraphError", "FileError"}
    assert became["GraphError"] > 400


@pytest.mark.parametrize(
    "path",
    ["../outside/m", "../../outside/m", "{outside}/m", "{outside}/", "..", ".", "", "../", "\\000",
     "\\377\\376", "m" * 5000, "a/" * 5000, "{outside}/m.index"],
)  # fmt: skip
def test_the_state_file_leads_nowhere_else(path, tmp_path):
    outside = tmp_path / "outside"
    written(outside, forged())
    (outside / ".index").write_bytes(forged())
    folder = tmp_path / "runs" / "1"
    folder.mkdir(parents=True)
    named = path.format(outside=outside)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{named}"\n')
    with pytest.raises(Error) as found:
        find_checkpoint(folder)
    assert "\n" not in str(found.value)
    assert "\0" not in str(found.value)
    written(folder, forged())  # one of its own with that name is what is meant
    with contextlib.suppress(Error):
        assert find_checkpoint(folder).folder == folder


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 9999, b'model_checkpoint_path: "' + b"\xfe" * 9999 + b'"',
     b"model_checkpoint_path",
     b'model_checkpoint_path: "\0"', b'model_checkpoint_path: "a\nb"', bytes(1 << 20)],
)  # fmt: skip
def test_state_files_that_are_none(content, tmp_path):
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(Error) as found:
        deploykit.freeze(tmp_path)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 500


def test_meta_files_that_are_none(tmp_path):
    written(tmp_path, forged())
    rng = random.Random(2)
    for content in (b"", bytes(1000), rng.randbytes(5000), b"\x0a\xff\xff\xff\xff\x0f"):
        (tmp_path / "m.meta").write_bytes(content)
        with pytest.raises(GraphError) as found:
            deploykit.freeze(tmp_path / "m")
        assert "\n" not in str(found.value)
