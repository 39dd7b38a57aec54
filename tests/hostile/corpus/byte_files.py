"""Bytes that are no model, and look more or less like one."""

import gzip
import random
import zlib

from tests.hostile.case import BAD, HARMLESS, ODD, Case, Statuses, statuses, written
from tests.hostile.graphs import net
from tests.hostile.wire import block, group, number, varint

KIND = "bytes"
GOOD = net().SerializeToString(deterministic=True)
NODE = net().node[1].SerializeToString(deterministic=True)


def case(
    name: str, content: bytes, right: Statuses = BAD, heavy: bool = False, file: str = "model.pb"
) -> Case:
    """Return a case of one file."""
    return Case(KIND, name, lambda folder: written(folder, file, content), right=right, heavy=heavy)


def repeated(name: str, piece: bytes, times: int, heavy: bool = False, right: Statuses = BAD):
    """Return a case of one file that holds the same bytes many times."""
    return Case(
        KIND, name, lambda folder: written(folder, "model.pb", piece * times), right=right,
        heavy=heavy,
    )  # fmt: skip


CASES = (
    case("empty", b""),
    case("one zero byte", b"\0"),
    case("zeros", bytes(100_000)),
    case("ff", b"\xff" * 100_000),
    case("random", random.Random(1).randbytes(100_000)),
    case("plain text", b"this is no model at all\n" * 50),
    case("python source", b"import os\nos.system('true')\n"),
    case("text in the place of text proto", b"node { name: 'x' op:", file="model.pbtxt"),
    case("text proto with deep braces", b"node { " * 5_000, file="model.pbtxt"),
    case("text proto with a huge number", b"versions { producer: " + b"9" * 100_000 + b" }",
         file="model.pbtxt"),
    case("html", b"<!DOCTYPE html><html><body>404</body></html>"),
    case("git lfs pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:"
         + b"0" * 64 + b"\nsize 12345\n"),
    case("gzip of a model", gzip.compress(GOOD, mtime=0)),
    case("gzip of 5 MB of zeros", gzip.compress(bytes(5 << 20), mtime=0)),
    case("zlib of a model", zlib.compress(GOOD)),
    case("pickle", b"\x80\x04\x95\x1d\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."),
    case("hdf5 named pb", b"\x89HDF\r\n\x1a\n" + bytes(500)),
    case("zip named pb", b"PK\x03\x04" + bytes(500)),
    case("elf", b"\x7fELF\x02\x01\x01" + bytes(500)),
    case("png named pb", b"\x89PNG\r\n\x1a\n" + bytes(500)),
    case("truncated by one byte", GOOD[:-1]),
    case("truncated in half", GOOD[: len(GOOD) // 2]),
    case("truncated to three bytes", GOOD[:3]),
    case("trailing garbage", GOOD + b"garbage at the end"),
    case("trailing zeros", GOOD + bytes(64)),
    case("leading byte order mark", b"\xef\xbb\xbf" + GOOD),
    case("twice the same model", GOOD + GOOD),
    case("varint without an end", b"\x0a" + b"\xff" * 200),
    case("varint of eleven bytes", b"\x0a" + b"\x80" * 10 + b"\x01"),
    case("node longer than the file", block(1, NODE, 1 << 40)),
    case("node of 2 GiB", block(1, NODE, (1 << 31) - 1)),
    case("node of minus one byte", block(1, NODE, (1 << 64) - 1)),
    case("node as a number", number(1, 7)),
    case("node as fixed64", b"\x09" + bytes(8)),
    case("library as a number", GOOD + number(2, 7), right=ODD),
    case("field number zero", GOOD + b"\x02\x00"),
    case("wire type seven", GOOD + b"\x0f\x00"),
    case("end of a group without its start", GOOD + b"\x0c"),
    case("unknown fields", GOOD + block(200, b"x" * 1000) + number(201, 1), right=HARMLESS),
    case("unknown group", GOOD + group(200), right=ODD),
    case("groups 5,000 deep", GOOD + varint(200 << 3 | 3) * 5_000 + varint(200 << 3 | 4) * 5_000,
         right=ODD),
    case("name that is no UTF-8", block(1, block(1, b"\xff\xfe\xc0") + block(2, b"NoOp"))),
    case("op that is no UTF-8", block(1, block(1, b"a") + block(2, b"\xff\xfe\xc0"))),
    case("only versions", b"\x22\x02\x08\x01"),
    case("versions to come", GOOD + block(4, number(1, 1 << 30) + number(2, 1 << 30))),
    case("versions below zero", GOOD + block(4, number(1, (1 << 64) - 5)), right=ODD),
    case("deprecated version field", GOOD + number(3, (1 << 31) - 1), right=ODD),
    repeated("100,000 empty nodes", b"\x0a\x00", 100_000),
    repeated("5,000,000 empty nodes", b"\x0a\x00", 5_000_000, heavy=True),
    repeated("2,000,000 empty functions", b"\x12\x02\x0a\x00", 1_000_000, heavy=True),
    repeated("2,000,000 empty fields unknown", b"\xa2\x0c\x00", 2_000_000, heavy=True),
    Case(KIND, "2,000,000 empty inputs of a node",
         lambda folder: written(folder, "model.pb", GOOD + block(1, block(1, b"many") + block(2,
         b"NoOp")
                                                          + b"\x1a\x00" * 2_000_000)),
         culprit=("'many'",), heavy=True),
    Case(KIND, "a name of 4 MB",
         lambda folder: written(folder, "model.pb", GOOD + block(1, block(1, b"n" * (4 << 20))
                                                                 + block(2, b"NoOp"))),
         right=ODD, heavy=True),
    Case(KIND, "a folder named model.pb", lambda folder: (folder / "model.pb").mkdir(),
         right=statuses(2, 4)),
)  # fmt: skip
