"""Files of Keras that run code, unpack to gigabytes, or are no archives."""

import base64
import io
import json
import marshal
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.hostile.case import Case, Statuses, canary, statuses, written

KIND = "keras_archives"
REFUSED = statuses(3, check=3, inspect=3)
WRONG = statuses(2, 3)
DATE = (1980, 1, 1, 0, 0, 0)
METADATA = {"keras_version": "3.11.0", "date_saved": "2025-01-01@00:00:00"}


def layer(kind: str, name: str = "odd", module: str = "keras.layers", **config):
    """Return the description of a layer."""
    return {
        "module": module, "class_name": kind, "registered_name": None,
        "config": {"name": name, **config},
    }  # fmt: skip


def sequential(*layers) -> dict:
    """Return the description of a model."""
    first = layer("InputLayer", "x", batch_shape=[None, 3], dtype="float32")
    return layer("Sequential", "model", "keras", layers=[first, *layers], trainable=True)


def code(path: Path) -> str:
    """Return Python code that writes a file, as Keras keeps it in a Lambda layer."""
    source = f"lambda x: (open({str(path)!r}, 'w').write('was run'), x)[1]"
    return base64.b64encode(marshal.dumps(eval(source).__code__)).decode()


def archive(parts: dict[str, bytes | str], **given) -> bytes:
    """Return a zip file, the same at all times."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            info = zipfile.ZipInfo(name, DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, content)
    return made.getvalue()


def whole(config: object, **more: bytes) -> bytes:
    """Return an archive with this description."""
    text = config if isinstance(config, str) else json.dumps(config)
    return archive({"metadata.json": json.dumps(METADATA), "config.json": text,
                    **{name.replace("__", "."): part for name, part in more.items()}})  # fmt: skip


def case(
    name: str, make: Callable[[Path], bytes], *culprit: str, right: Statuses = WRONG,
    heavy: bool = False, file: str = "model.keras",
) -> Case:  # fmt: skip
    """Return a case of one file."""
    return Case(KIND, name, lambda folder: written(folder, file, make(folder)), "model", right,
                culprit, heavy)  # fmt: skip


def bomb(gibibytes: int, name: str = "config.json") -> bytes:
    """Return an archive with a part of so many GiB of spaces, which takes a thousandth of that."""
    piece = b" " * (1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = bytearray()
    crc = 0
    once = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(1):
        crc = zlib.crc32(piece, crc)
    again = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    total = gibibytes << 10
    packed += once + again * (total - 1) + packer.flush()
    size = total << 20
    return stored(name, bytes(packed), size, _crc_of_spaces(total), 8)


def _crc_of_spaces(mebibytes: int) -> int:
    """Return the checksum of so many MiB of spaces; gigabytes take seconds."""
    crc, piece = 0, b" " * (1 << 20)
    for _ in range(mebibytes):
        crc = zlib.crc32(piece, crc)
    return crc


def stored(
    name: str, content: bytes, size: int, crc: int, method: int = 0, flags: int = 0
) -> bytes:
    """Return a zip file of one part, with a header that says anything, and sizes in 64 bits."""
    label = name.encode()
    sizes = struct.pack("<HHQQ", 1, 16, size, len(content))
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, flags, method, 0, 33, crc, 0xFFFFFFFF,
                        0xFFFFFFFF, len(label), len(sizes)) + label + sizes  # fmt: skip
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 45, 45, flags, method, 0, 33, crc,
                          0xFFFFFFFF, 0xFFFFFFFF, len(label), len(sizes), 0, 0, 0, 0,
                          0)  # fmt: skip
    central += label + sizes
    body = local + content
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(body), 0)
    return body + central + end


def pickled(folder: Path) -> bytes:
    """Return a pickle that writes a file when it is loaded."""

    class Writes:
        def __reduce__(self):
            return (exec, (f"open({str(canary(folder))!r}, 'w').write('was run')",))

    return pickle.dumps(Writes())


def lambda_layer(folder: Path) -> dict:
    """Return a layer with code in it."""
    held = {"class_name": "__lambda__", "config": {"code": code(canary(folder)), "defaults": None,
                                                    "closure": None}}  # fmt: skip
    return layer("Lambda", function=held, arguments={})


SOUND = sequential(layer("ReLU"))
DENSE = sequential(layer("Dense", units=4, activation="linear"))

CASES = (
    case("empty", lambda _: b""),
    case("no zip", lambda _: b"\xff" * 1000),
    case("zip of nothing", lambda _: archive({})),
    case("zip truncated", lambda _: whole(SOUND)[:-30]),
    case("zip with a part cut out", lambda _: whole(SOUND)[200:]),
    case("zip with a wrong checksum", lambda _: stored("config.json", b"{}", 2, 7)),
    case("zip with sizes that lie", lambda _: stored("config.json", b"{}", 1 << 40,
         zlib.crc32(b"{}"))),
    case("zip with a method that does not exist",
         lambda _: stored("config.json", b"{}", 2, zlib.crc32(b"{}"), 77)),
    case("zip that is encrypted",
         lambda _: stored("config.json", b"{}", 2, zlib.crc32(b"{}"), 0, flags=1)),
    case("zip with 50,000 parts",
         lambda _: archive({f"n{i}": b"" for i in range(50_000)} | {"config.json": "{}"}),
         heavy=True),
    case("zip with a part twice", lambda _: double()),
    case("zip with parts outside its folder", lambda f: whole(
        DENSE, **{f"../../{'../' * 20}{canary(f)}": b"was run"})),
    case("weights as a link", lambda f: linked()),
    case("config of 6 GiB of spaces", lambda _: bomb(6), heavy=True),
    case("config of 1 GiB of spaces", lambda _: bomb(1), heavy=True),
    case("weights of 1 GiB of spaces", lambda _: bomb(1, "model.weights.h5"), heavy=True),
    case("config that is no JSON", lambda _: whole("{")),
    case("config of bytes", lambda _: archive({"config.json": b"\xff\xfe"})),
    case("config that is a list", lambda _: whole([])),
    case("config that is null", lambda _: whole("null")),
    case("config that is a number", lambda _: whole("7")),
    case("config that is a text", lambda _: whole('"Sequential"')),
    case("config 100,000 deep", lambda _: whole("[" * 100_000)),
    case("config of objects 20,000 deep", lambda _: whole('{"a":' * 20_000 + "1" + "}" * 20_000)),
    case("config of a number of 100,000 digits", lambda _: whole("9" * 100_000)),
    case("config with NaN", lambda _: whole(json.dumps(sequential(layer("ReLU",
         max_value=1))).replace(
        '"max_value": 1', '"max_value": NaN')), right=statuses(0, 2, 5)),
    case("config without layers", lambda _: whole(sequential())),
    case("config of an unknown layer", lambda _: whole(sequential(layer("Nothing"))), "Nothing"),
    case("config of a layer of another module",
         lambda _: whole(sequential(layer("Popen", module="subprocess", args=["true"]))), "Popen",
         "subprocess"),
    case("config that calls os.system", lambda f: whole(sequential(
        layer("system", module="os", command=f"touch {canary(f)}"))), "system"),
    case("config of a function of another module", lambda f: whole(sequential(
        layer("Activation", activation={"module": "os", "class_name": "function",
              "config": "system",
                                        "registered_name": "system"}))), "system"),
    case("config of a layer without a class", lambda _: whole(sequential({"config": {}}))),
    case("config of a layer with a negative size",
         lambda _: whole(sequential(layer("Dense", units=-5)))),
    case("config of a layer of 2^40 units",
         lambda _: whole(sequential(layer("Dense", units=1 << 40, name="odd"))),
        right=statuses(2, 3, 6), heavy=True),
    case("config of models within models, 150 deep", lambda _: whole(nested(150))),
    case("Lambda with code", lambda f: whole(sequential(lambda_layer(f))), "odd", "Lambda",
         right=REFUSED),
    case("Lambda with code, in a model within", lambda f: whole(sequential(
        sequential(lambda_layer(f)))), "odd", "Lambda", right=REFUSED),
    case("Lambda with code, in a TimeDistributed", lambda f: whole(sequential(
        layer("TimeDistributed", layer=lambda_layer(f)))), "odd", "Lambda", right=REFUSED),
    case("Lambda of a function by name", lambda f: whole(sequential(layer(
        "Lambda", function={"module": "os", "class_name": "function", "config": "system",
                            "registered_name": "system"}))), "odd", "Lambda", "system"),
    case("Lambda with code of Keras 2", lambda f: json_of_keras_2(f), "odd", "Lambda",
         right=REFUSED),
    case("TorchModuleWrapper with a pickle", lambda f: whole(sequential(layer(
        "TorchModuleWrapper", module=base64.b64encode(pickled(f)).decode()))), "odd",
        "TorchModuleWrapper"),
    case("weights missing", lambda _: whole(DENSE)),
    case("weights of garbage", lambda _: whole(DENSE, model__weights__h5=b"\xff" * 500)),
    case("weights empty", lambda _: whole(DENSE, model__weights__h5=b"")),
    case("weights as a pickle", lambda f: whole(DENSE, model__weights__h5=pickled(f))),
    case("a pickle named .keras", pickled),
    case("a pickle named .h5", pickled, file="model.h5"),
    case("a version of Keras to come", lambda _: archive(
        {"metadata.json": '{"keras_version": "99.0"}', "config.json": json.dumps(SOUND)}),
        right=statuses(0, 2, 5)),
    case("a version of Keras that is a list", lambda _: archive(
        {"metadata.json": '{"keras_version": []}', "config.json": json.dumps(SOUND)}),
        right=statuses(0, 2, 5)),
    case("metadata of garbage", lambda _: archive(
        {"metadata.json": b"\xff", "config.json": json.dumps(SOUND)}), right=statuses(0, 2, 5)),
    case("sound", lambda _: whole(SOUND, model__weights__h5=b""),
         right=statuses(0, 2, quantize=(0, 2, 5))),
)  # fmt: skip


def double() -> bytes:
    """Return an archive in which a name stands twice."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for content in (json.dumps(SOUND), "{}"):
            info = zipfile.ZipInfo("config.json", DATE)
            file.writestr(info, content)
        file.writestr(zipfile.ZipInfo("metadata.json", DATE), json.dumps(METADATA))
    return made.getvalue()


def linked() -> bytes:
    """Return an archive whose weights are a link to a file outside."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(zipfile.ZipInfo("config.json", DATE), json.dumps(DENSE))
        file.writestr(zipfile.ZipInfo("metadata.json", DATE), json.dumps(METADATA))
        info = zipfile.ZipInfo("model.weights.h5", DATE)
        info.external_attr = 0o120777 << 16
        file.writestr(info, "/etc/passwd")
    return made.getvalue()


def nested(depth: int) -> dict:
    """Return a model in a model in a model."""
    made = sequential(layer("ReLU"))
    for _ in range(depth):
        made = sequential(made)
    return made


def json_of_keras_2(folder: Path) -> bytes:
    """Return an archive as Keras 2 wrote it, with code."""
    config = {
        "class_name": "Sequential", "config": {"name": "model", "layers": [
            {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 3], "name": "x",
                                                    "dtype": "float32"}},
            {"class_name": "Lambda", "config": {"name": "odd", "function": [code(canary(folder)),
                                                                            None, None],
                                                "function_type": "lambda", "module": "__main__",
                                                "arguments": {}}}]},
    }  # fmt: skip
    return archive(
        {"metadata.json": '{"keras_version": "2.13.1"}', "config.json": json.dumps(config)}
    )
