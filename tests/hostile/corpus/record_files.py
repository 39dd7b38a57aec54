"""TFRecords that are cut, lie about their lengths, or do not fit their index."""

import gzip
import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploykit.transforms.ir.tfrecord import framed, masked_crc
from tests.hostile.case import Case, Statuses, statuses, written
from tests.hostile.commands import example, records
from tests.hostile.wire import block

KIND = "record_files"
WRONG = statuses(2, 4, 5)
ODD = statuses(0, 2, 4, 5)
SHARDS = {"records inspect": (0, 2, 4, 5), "input write": (0, 2, 4, 5)}
DAMAGED = statuses(2, 4, 5, **SHARDS)
UNREAD = statuses(2, 4, 5, **{**SHARDS, "records verify": (0, 2, 4, 5)})
"""The shard is whole, and who does not read its Examples finds nothing wrong."""
"""These two read the index alone."""
SHARD = "data-00000-of-00001.tfrecord"
GOOD = records()
FEATURES = {"x": {"dtype": "float32", "shape": [3]}}


def index(content: bytes, count: int = 20, **changes: Any) -> dict[str, Any]:
    """Return the index of a shard."""
    shard = {"file": SHARD, "records": count, "bytes": len(content),
             "sha256": hashlib.sha256(content).hexdigest()}  # fmt: skip
    found = {"format": 1, "name": "data", "records": count, "bytes": len(content),
             "compression": "", "features": FEATURES, "shards": [shard]}  # fmt: skip
    for key, value in changes.items():
        target = shard if key in shard and key not in ("records", "bytes") else found
        target[key] = value
    return found


def folder_of(folder: Path, content: bytes, said: object) -> Path:
    """Write a shard and its index; return their folder."""
    written(folder, f"set/{SHARD}", content)
    text = said if isinstance(said, str | bytes) else json.dumps(said)
    written(folder, "set/data.index.json", text)
    return folder / "set"


def case(
    name: str, content: bytes | Callable[[], bytes], said: object = None, *culprit: str,
    right: Statuses = WRONG, heavy: bool = False, **changes: Any,
) -> Case:  # fmt: skip
    """Return a case of a shard; the index says what is there, but for the changes."""

    def write(folder: Path) -> Path:
        made = content() if callable(content) else content
        return folder_of(folder, made, index(made, **changes) if said is None else said)

    sound = said is None and not changes.keys() - {"count", "sha256", "compression"}
    if right is WRONG and (sound or (isinstance(said, dict) and said.get("shards"))):
        right = DAMAGED
    named = culprit or ("data", "'x'", "/set:")
    return Case(KIND, name, write, "records", right, named, heavy)


def of(*features: bytes) -> bytes:
    """Return records with these messages."""
    return b"".join(map(framed, features))


def lying(length: int, right_crc: bool = True) -> bytes:
    """Return a record that says it is so long."""
    head = struct.pack("<Q", length)
    crc = masked_crc(head) if right_crc else 0
    return head + struct.pack("<I", crc) + b"x" * 100


LONG = b"".join(framed(example(x=[1.0, 2.0, 3.0])) for _ in range(1000))

CASES = (
    case("sound", GOOD, right=statuses(0, 2, 5, **{"records inspect": 0, "records verify": 0})),
    case("empty file", b""),
    case("garbage", b"\xff" * 1000),
    case("cut inside a record", GOOD[:-7], said=index(GOOD)),
    case("cut at a boundary", GOOD[: len(GOOD) // 20 * 10], said=index(GOOD),
         right=statuses(0, 2, **{"records verify": 5})),  # a warning, and the records are read
    case("cut inside a length", GOOD[: len(GOOD) // 20 * 10 + 5], said=index(GOOD)),
    case("cut inside a record, as the index says", GOOD[:-7]),
    case("a record more than the index says", GOOD + framed(b""), said=index(GOOD)),
    case("a length of 2^63", GOOD + lying(1 << 63), count=21),
    case("a length of 2^64-1", GOOD + lying((1 << 64) - 1), count=21),
    case("a length of 1 TiB", GOOD + lying(1 << 40), count=21),
    case("a length of 2 GiB", GOOD + lying((1 << 31) - 1), count=21),
    case("a length with a wrong checksum", GOOD + lying(50, right_crc=False), count=21),
    case("a value with a wrong checksum", GOOD[:-1] + bytes([GOOD[-1] ^ 1])),
    case("a flipped bit, as the index says", GOOD[:30] + bytes([GOOD[30] ^ 4]) + GOOD[31:]),
    case("a flipped bit, not as the index says", GOOD[:30] + bytes([GOOD[30] ^ 4]) + GOOD[31:],
         said=index(GOOD)),
    case("an empty record", GOOD + framed(b""), count=21, right=UNREAD),
    case("a record that is no Example", of(b"\xff" * 20) * 20, right=UNREAD),
    case("a record of a wrong type", of(example(x=b"text")) * 20, right=UNREAD),
    case("a record of too many numbers", of(example(x=[1.0] * 1000)) * 20, right=UNREAD),
    case("a record without the feature", of(example(y=[1.0])) * 20, right=UNREAD),
    case("a record with the feature twice", of(example(x=[1.0, 2.0, 3.0]) * 2) * 20, right=ODD),
    case("a record of a feature of garbage", of(block(1, block(1, b"\xff" * 9))) * 20,
         right=UNREAD),
    case("a record with 100,000 features", lambda: of(example(**{f"f{i}": [1.0] for i in range(
        100_000)})), count=1, right=UNREAD, heavy=True),
    case("packed, the index says it is not", gzip.compress(GOOD, mtime=0)),
    case("not packed, the index says it is", GOOD, compression="GZIP"),
    case("packed, and cut", gzip.compress(GOOD, mtime=0)[:-9], compression="GZIP",
         right=ODD),  # its records are all sound
    case("packed, 1 GiB of zeros", lambda: gzip.compress(bytes(1 << 30), 9, mtime=0),
         compression="GZIP", heavy=True),
    case("packed by an unknown method", GOOD, compression="LZMA9"),
    case("another hash", GOOD, sha256="0" * 64, right=ODD),  # a note says that it is ignored
    case("another count", GOOD, count=7),
    case("a count of 2^62", GOOD, count=1 << 62),
    case("a count below zero", GOOD, count=-20),
    case("a count that is a text", GOOD, count="20"),
    case("a shard outside the folder", GOOD, file="../../../../etc/passwd"),
    case("a shard with an absolute path", GOOD, file="/etc/passwd"),
    case("a shard that is a device", GOOD, file="/dev/zero"),
    case("a shard that is missing", GOOD, file="data-00000-of-00002.tfrecord"),
    case("a shard with a null in its name", GOOD, file="a\0b"),
    case("a shard that is a number", GOOD, file=7),
    case("no shards", GOOD, shards=[]),
    case("shards that are no list", GOOD, shards={"a": 1}),
    case("200,000 shards", GOOD, shards=[{"file": SHARD}] * 200_000, heavy=True),
    case("features that are a list", GOOD, features=[]),
    case("a feature of an unknown type", GOOD, features={"x": {"dtype": "float7", "shape": [3]}}),
    case("a feature of a shape of 2^40", GOOD, features={"x": {"dtype": "float32",
         "shape": [1 << 40]}}, right=UNREAD),
    case("a feature of a shape below zero", GOOD, features={"x": {"dtype": "float32",
         "shape": [-3]}}),
    case("a feature of another shape", GOOD, features={"x": {"dtype": "float32", "shape": [5]}},
         right=UNREAD),
    case("a feature with an escape in its name", GOOD,
         features={"a\x1b[2J": {"dtype": "float32", "shape": [3]}}, right=UNREAD),
    case("a format to come", GOOD, format=99),
    case("an index that is empty", GOOD, said=""),
    case("an index that is no JSON", GOOD, said="{"),
    case("an index that is a list", GOOD, said=[]),
    case("an index 100,000 deep", GOOD, said="[" * 100_000),
    case("an index of bytes", GOOD, said=b"\xff\xfe"),
    case("an index with a number of 100,000 digits", GOOD, said="9" * 100_000),
    case("an index with NaN", GOOD, said='{"format": NaN}'),
    case("an index with keys twice", GOOD, said='{"format": 1, "format": 2}'),
    case("an index of 5 MB of spaces", GOOD, said=" " * (5 << 20), heavy=True),
    case("many sound records", LONG, count=1000,
         right=statuses(0, 2, 5, **{"records inspect": 0, "records verify": 0})),
)  # fmt: skip
