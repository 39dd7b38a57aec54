"""Parts of results that nothing computed, and what they are said to be made of."""

import hashlib
from dataclasses import replace

import numpy as np

from deploykit.batch_inference.formats.part_table import PartTable, features_of, format_named
from deploykit.batch_inference.infer_task import PartDone
from deploykit.batch_inference.reading.data_parts import BadRow
from deploykit.batch_inference.results_folder import results_folder
from deploykit.batch_inference.results_index import MadeOf

NAME, PARTS, ROWS = "photos", 4, 3


def made_of(**changes):
    """Return what results are made of."""
    known = MadeOf(
        {"source": "a.pb", "sha256": "a" * 64},
        {"path": "photos", "kind": "images", "fingerprint": "f" * 64},
        {
            "format": "npz",
            "labels": None,
            "on_error": "stop",
            "outputs": {"x": "a" * 99},
            "settings": {"batch": 32, "precision": 3},
        },
        PARTS,
    )
    return replace(known, **changes)


def part(folder, made, number, name=NAME, skipped=()):
    """Write a part, as a worker does, and return what is noted of it."""
    from deploykit.storage.files import write

    table = PartTable()
    rows = [row for row in range(ROWS) if row not in skipped]
    scores = np.array([[number, row] for row in rows], np.float32).reshape(-1, 2)
    if rows:
        table.add([f"{number}.jpg"] * len(rows), rows, {"scores": scores})
    columns = table.columns()
    end = made.options["format"]
    path = folder / f"{name}-{number:05}-of-{made.parts:05}.{end}"
    content = b"".join(format_named(end)(columns))
    write(path, [content], force=True)
    return PartDone(
        number, path.name, table.rows, len(content), hashlib.sha256(content).hexdigest(),
        hashlib.sha256(str(number).encode()).hexdigest(),
        tuple(BadRow(f"{number}.jpg", row, "no é JPEG \udcff") for row in skipped),
        features_of(columns),
    )  # fmt: skip


def run(folder, made=None, name=NAME, force=False, most=None, skipped=()):
    """Do what a driver does; return the index and which parts were computed, None after `most`.

    `skipped` are rows of the second part.
    """
    made = made or made_of()
    computed = []
    with results_folder(folder, name, made, force) as results:
        for number in sorted({*range(made.parts)} - {*results.kept()}):
            if len(computed) == most:
                return None, computed
            results.note(part(folder, made, number, name, skipped if number == 1 else ()))
            computed.append(number)
        return results.finish(), computed


def end_with(folder, act, made=None):
    """Hold a folder, and let a function act on it."""
    with results_folder(folder, NAME, made or made_of()) as results:
        act(results)
