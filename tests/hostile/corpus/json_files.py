"""JSON and text files of settings: deep, huge, of wrong types, with code or escapes."""

import json
from pathlib import Path

from tests.hostile.case import Case, Statuses, statuses, written
from tests.hostile.commands import rows

WRONG = statuses(2)
USED = statuses(2, freeze=(0, 2))
"""It can be kept, but not be done."""
ODD = statuses(0, 2, 5)

# What no reader of JSON may stumble over, whatever the document is.
TEXTS: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{",
    "bytes that are no text": b"\xff\xfe{}",
    "a null byte": b"{}\0",
    "two documents": b"{}{}",
    "a list": b"[]",
    "a number": b"7",
    "a text": b'"text"',
    "null": b"null",
    "NaN": b"NaN",
    "lists 100,000 deep": b"[" * 100_000,
    "lists 100,000 deep, closed": b"[" * 100_000 + b"]" * 100_000,
    "objects 50,000 deep": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a number of 100,000 digits": b"9" * 100_000,
    "a text of 4 MB": b'"' + b"a" * (4 << 20) + b'"',
    "a text of one half of a surrogate": b'{"a": "\\ud800"}',
    "500,000 empty lists": b"[" + b"[]," * 500_000 + b"[]]",
    "a pickle": b"\x80\x04\x95rest",
}


def of_texts(kind: str, opened_as: str, file: str, right: Statuses) -> tuple[Case, ...]:
    """Return a case of each text."""
    return tuple(
        Case(kind, name, lambda folder, content=content: written(folder, file, content), opened_as,
             right, (), len(content) > 1 << 20)
        for name, content in TEXTS.items()
    )  # fmt: skip


def document(kind: str, opened_as: str, file: str, name: str, value: object, *culprit: str,
             right: Statuses = WRONG) -> Case:  # fmt: skip
    """Return a case of a document."""
    text = value if isinstance(value, str) else json.dumps(value)
    return Case(kind, name, lambda folder: written(folder, file, text), opened_as, right, culprit)


STEPS = "preprocess"


def steps(name: str, value: object, *culprit: str, right: Statuses = WRONG) -> Case:
    """Return a case of a file of --preprocess with such an input."""
    return document(STEPS, STEPS, "steps.json", name, {"format": 1, "inputs": {"x": value}},
                    *culprit, right=right)  # fmt: skip


SIDECAR = "sidecars"


def beside(name: str, value: object, *culprit: str, right: Statuses = ODD) -> Case:
    """Return a case of a sound graph with such a file beside it."""
    content = (
        value
        if isinstance(value, bytes)
        else (value if isinstance(value, str) else json.dumps(value))
    )

    def write(folder: Path) -> Path:
        written(folder, "model.pb.json", content)
        return written(folder, "model.pb", rows().SerializeToString(deterministic=True))

    return Case(SIDECAR, name, write, "model", right, culprit or ("model.pb.json",),
                len(content) > 1 << 20)  # fmt: skip


def about(**changes: object) -> dict[str, object]:
    """Return such a file as deploykit writes it, but for the changes."""
    import hashlib

    graph = rows().SerializeToString(deterministic=True)
    return {"format": 1, "kind": "model", "sha256": hashlib.sha256(graph).hexdigest(),
            "inputs": ["x"], "outputs": ["out"], "signatures": {}, "preprocessing": None,
            "labels": [], "photos": {}, **changes}  # fmt: skip


RESULT = "results"


def result(name: str, value: object, right: Statuses = WRONG) -> Case:
    """Return a case of a result of another command."""
    return document(RESULT, "result", "result.json", name, value, right=right)


CASES = (
    *of_texts(STEPS, STEPS, "steps.json", WRONG),
    steps("a size of minus one", {"resize": [-1, -1]}, "resize"),
    steps("a size of 2^40", {"resize": [1 << 40, 1 << 40]}, "resize"),
    steps("a size of 30,000 x 30,000", {"resize": [30_000, 30_000]}, "resize", "x",
          right=USED),
    steps("a size of texts", {"resize": ["a", "b"]}, "resize"),
    steps("a size of True", {"resize": [True, True]}, "resize"),
    steps("a size of one number", {"resize": 8}, "resize"),
    steps("a crop larger than the image", {"resize": [8, 8], "crop": [99, 99]}, "crop", right=USED),
    steps("a scale of NaN", {"scale": float("nan")}, "scale"),
    steps("a scale of a text", {"scale": "1"}, "scale"),
    steps("a deviation of zero", {"std": [0.0]}, "std"),
    steps("a mean of 100,000 numbers", {"mean": [0.0] * 100_000}, "mean", "x", right=USED),
    steps("channels of 2^31", {"channels": 2**31}, "channels"),
    steps("a type that does not exist", {"dtype": "float7"}, "dtype", "float7"),
    steps("a type that is code", {"dtype": "__import__('os')"}, "dtype"),
    steps("a feature that is a path", {"feature": "../../etc/passwd"}, "passwd", right=ODD),
    steps("a step that does not exist", {"exec": "os.system"}, "exec"),
    steps("inputs of a list", [1, 2, 3], "x"),
    steps("a length below zero", {"length": -1}, "length"),
    document(STEPS, STEPS, "steps.json", "an input that does not exist",
             {"format": 1, "inputs": {"nothing": {}}}, "nothing", right=ODD),
    document(STEPS, STEPS, "steps.json", "columns of 2^62",
             {"format": 1, "inputs": {}, "columns": {"x": [0, 1 << 62]}}, right=ODD),
    document(STEPS, STEPS, "steps.json", "keys twice",
             '{"format": 1, "inputs": {"x": {"scale": 1, "scale": 2}}}', right=ODD),
    *(beside(name, text) for name, text in TEXTS.items()),
    beside("another hash", about(sha256="0" * 64)),
    beside("a hash that is a number", about(sha256=7)),
    beside("a format to come", about(format=99)),
    beside("a format of True", about(format=True)),
    beside("inputs that are not there", about(inputs=["gone"]), "gone", "model.pb.json"),
    beside("inputs that are a text", about(inputs="x")),
    beside("inputs that are numbers", about(inputs=[1])),
    beside("inputs of a million names", about(inputs=["x"] * 200_000)),
    beside("outputs that are not there", about(outputs=["gone:7"]), "gone", "model.pb.json"),
    beside("outputs that are null", about(outputs=None)),
    beside("outputs with an escape", about(outputs=["a\x1b[2J"]), "a\\x1b[2J", "model.pb.json"),
    beside("signatures of a list", about(signatures=[1])),
    beside("signatures of texts", about(signatures={"a": "b"})),
    beside("signatures of tensors that are not there", about(signatures={
        "serving_default": {"inputs": {"a": "gone:0"}, "outputs": {"b": "out:0"}, "method": "m"}})),
    beside("a signature of a method that is a list", about(signatures={
        "serving_default": {"inputs": {"a": "x"}, "outputs": {"b": "out"}, "method": []}})),
    beside("preprocessing of a text", about(preprocessing="0..1")),
    beside("preprocessing of another input", about(preprocessing={"format": 1,
           "inputs": {"q": {}}})),
    beside("labels that are numbers", about(labels=[1, 2])),
    beside("labels that are a text", about(labels="abc")),
    beside("labels with escapes", about(labels=["\x1b[2J", "a\nb", "c", "d"])),
    beside("photos of a list", about(photos=[1])),
    beside("photos of lists", about(photos={"x": [1]})),
    beside("unknown keys", about(__class__="os.system")),
    *of_texts(RESULT, "result", "result.json", WRONG),
    result("another kind", {"format": 1, "kind": "model"}),
    result("a kind that is a list", {"format": 1, "kind": ["benchmark"]}),
    *(result(f"{kind}, a format to come", {"format": 99, "kind": kind})
      for kind in ("benchmark", "tuned", "ranges")),
    *(result(f"{kind} without anything", {"format": 1, "kind": kind})
      for kind in ("benchmark", "tuned", "ranges")),
    *(result(f"{kind} of wrong types", {"format": 1, "kind": kind, "results": 7, "settings": "x",
                                        "tensors": [1], "ranges": {"x": "a"}, "models": 3})
      for kind in ("benchmark", "tuned", "ranges")),
    *of_texts("labels", "labels", "labels.txt", ODD),
    document("labels", "labels", "labels.txt", "a million lines", "a\n" * 1_000_000, right=ODD),
    document("labels", "labels", "labels.txt", "escapes", "\x1b[2J\x1b]0;x\x07\nb\nc\n", right=ODD),
)  # fmt: skip
