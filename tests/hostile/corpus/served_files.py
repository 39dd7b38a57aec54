"""What a server reads besides the model: requests to warm up with, and its own settings."""

from collections.abc import Callable
from pathlib import Path

from deploykit.transforms.ir.tfrecord import framed
from tests.hostile.case import Case, Statuses, statuses, written
from tests.hostile.commands import saved_model
from tests.hostile.corpus.json_files import TEXTS
from tests.hostile.corpus.record_files import lying
from tests.hostile.corpus.saved_models import save

WARMUP = "warmups"
STAYS = statuses(0, 2)
"""The version may be refused or served without it; the server stays."""


def predicted(**changes: object) -> bytes:
    """Return a request to warm up with."""
    from deploykit.serving.protocol.protos import PredictionLog

    made = PredictionLog()
    request = made.predict_log.request
    request.model_spec.name = "model"
    tensor = request.inputs[str(changes.get("alias", "x"))]
    tensor.dtype = changes.get("dtype", 1)
    for size in changes.get("sizes", (1, 3)):
        tensor.tensor_shape.dim.add(size=size)
    tensor.float_val.extend(changes.get("values", (1.0, 2.0, 3.0)))
    return made.SerializeToString(deterministic=True)


def warmup(name: str, content: bytes | Callable[[], bytes], heavy: bool = False) -> Case:
    """Return a case of a served model with such requests."""

    def write(folder: Path) -> Path:
        made = content() if callable(content) else content
        written(folder, "1/assets.extra/tf_serving_warmup_requests", made)
        return save(folder, saved_model())

    return Case(WARMUP, name, write, "warmup", STAYS, ("warm", "case", "1"), heavy)


SETTINGS = "settings"
NO_SETTINGS = statuses(2, 4)


def settings(name: str, content: bytes, right: Statuses = NO_SETTINGS) -> Case:
    """Return a case of a list of models."""
    return Case(SETTINGS, name, lambda folder: written(folder, "models.config", content),
                "settings",
                right, ("models.config",), len(content) > 1 << 20)  # fmt: skip


def one(name: str, path: str, more: str = "") -> bytes:
    """Return a list of one model."""
    return (f'model_config_list {{ config {{ name: "{name}" base_path: "{path}" '
            f'model_platform: "tensorflow" {more} }} }}').encode()  # fmt: skip


CASES = (
    warmup("sound", framed(predicted())),
    warmup("empty", b""),
    warmup("garbage", b"\xff" * 500),
    warmup("cut", framed(predicted())[:-5]),
    warmup("a length of 2^63", lying(1 << 63)),
    warmup("a record of garbage", framed(b"\xff" * 50)),
    warmup("an empty record", framed(b"")),
    warmup("a tensor of 2^40", framed(predicted(sizes=(1 << 40, 3)))),
    warmup("a tensor of 2^30 with one value", framed(predicted(sizes=(1 << 28, 3), values=(1.0,)))),
    warmup("a tensor of minus one", framed(predicted(sizes=(-1, 3)))),
    warmup("a tensor of another type", framed(predicted(dtype=7))),
    warmup("a tensor of another shape", framed(predicted(sizes=(1, 5), values=[1.0] * 5))),
    warmup("another input", framed(predicted(alias="nothing"))),
    warmup("20,000 requests", lambda: framed(predicted()) * 20_000, heavy=True),
    *(settings(name, text) for name, text in TEXTS.items()),
    settings("a name of a path", one("../../etc", "/tmp"), statuses(0, 2, 4)),
    settings("a folder that is missing", one("a", "/nonexistent"), statuses(0, 2, 4)),
    settings("a folder that is a file", one("a", "/etc/passwd"), statuses(0, 2, 4)),
    settings("a relative folder", one("a", "../../.."), statuses(0, 2, 4)),
    settings("an unknown platform", one("a", "/nonexistent").replace(b"tensorflow", b"caffe"),
             statuses(0, 2, 4)),
    settings("a version of minus one",
             one("a", "/nonexistent", "model_version_policy { specific { versions: -1 } }"),
             statuses(0, 2, 4)),
    settings("a name twice", one("a", "/nonexistent") + one("a", "/nonexistent"), statuses(0, 2,
             4)),
    settings("braces 5,000 deep", b"model_config_list { " * 5_000),
    settings("a million models", b'model_config_list { ' + b"config { } " * 100_000 + b"}",
             statuses(0, 2, 4)),
    Case("asked", "a PNG of 60,000 x 60,000", lambda folder: written(folder, "odd.png", _png()),
         "asked", statuses(2)),
    Case("asked", "an array of objects", lambda folder: written(folder, "odd.npy", _npy("'|O'")),
         "asked", statuses(2, 3)),
    Case("asked", "an array of 2^40", lambda folder: written(folder, "odd.npy", _npy("'<f4'")),
         "asked", statuses(2)),
    Case("asked", "garbage", lambda folder: written(folder, "odd.npy", b"\xff" * 500), "asked",
         statuses(2)),
)  # fmt: skip


def _png() -> bytes:
    from tests.hostile.corpus.image_files import a_png

    return a_png(60_000, 60_000)


def _npy(of: str) -> bytes:
    from tests.hostile.corpus.npz_files import array

    return array(of, f"({1 << 40},)", bytes(40))
