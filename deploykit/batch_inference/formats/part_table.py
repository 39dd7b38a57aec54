"""The rows of one part as columns, collected batch by batch, and the output format by name."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, cast

import numpy as np

from deploykit.batch_inference.infer_task import FORMATS
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.engines.packages import how_to_install
from deploykit.transforms.ir.tensors import Array, numpy_type

FILE, ROW = "file", "row"
"""The columns that say where a row comes from: its file, below the folder of the data, and its
number there."""
TOP_CLASSES, TOP_SCORES, TOP_LABELS = "top_classes", "top_scores", "top_labels"
"""The columns of the classes with the highest scores."""
STRINGS = (FILE, TOP_LABELS)
"""The columns whose texts are ours, and so are no bytes that a graph holds."""
SHAPE_END = "_shape"
"""Ends the name of the column that says how large each row of another one was."""


class PartFormat(Protocol):
    """How columns become the bytes of a file, the same for the same columns."""

    def pieces(self, columns: Mapping[str, Array]) -> Iterator[bytes]:
        """Yield the bytes of a file that holds these columns, of equal numbers of rows.

        GraphError: the format cannot hold one of them.
        """
        ...


class PartTable:
    """What a model answered of the rows of a part."""

    def __init__(self, expected: Mapping[str, Feature] | None = None) -> None:
        """Begin without rows.

        `expected` is what the graph says of a row of each column before it runs. Where it leaves a
        size open, there is a column for the shapes in every part, and not only in those that need
        one; and a part all of whose rows were left out has the columns of the others.
        """
        self._expected = expected or {}
        self._sources: list[tuple[str, int]] = []
        self._batches: list[Mapping[str, Array]] = []

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._sources)

    def add(self, files: Sequence[str], rows: Sequence[int], columns: Mapping[str, Array]) -> None:
        """Take the answers to some rows, rows first."""
        self._sources.extend(zip(files, rows, strict=True))
        self._batches.append(columns)

    def columns(self) -> dict[str, Array]:
        """Return all rows by column: `file`, `row`, and what was answered.

        Rows of different shapes are filled up with 0, or with empty texts; then, a column `X_shape`
        says how large each was. Texts are objects: bytes, as graphs hold them, and files `str`.
        GraphError: rows differ in their number of dimensions.
        """
        batches = self._batches or [{k: _empty(item) for k, item in self._expected.items()}]
        files = np.empty(self.rows, object)
        files[:] = [file for file, _ in self._sources]
        results = {FILE: files, ROW: np.array([row for _, row in self._sources], np.int64)}
        for name in batches[0]:
            parts = [_plain(np.asarray(batch[name])) for batch in batches]
            results[name], shapes = _joined(name, parts, self._is_open(name))
            if shapes is not None:
                results[f"{name}{SHAPE_END}"] = shapes
        return results

    def _is_open(self, name: str) -> bool:
        return name in self._expected and None in self._expected[name].shape


def features_of(columns: Mapping[str, Array]) -> dict[str, Feature]:
    """Return the type and shape of a row of each column."""
    return {
        name: Feature("string" if item.dtype == object else item.dtype.name, item.shape[1:])
        for name, item in columns.items()
    }


def texts_of(array: Array) -> list[bytes]:
    """Return the texts of a column in a row, as bytes."""
    return [
        item if isinstance(item, bytes) else str(item).encode(errors="surrogateescape")
        for item in array.ravel().tolist()
    ]


def readable_texts_of(array: Array) -> list[str]:
    r"""Return the texts of a column in a row; bytes that are no UTF-8 become `\xff`."""
    return [text.decode(errors="backslashreplace") for text in texts_of(array)]


def _plain(array: Array) -> Array:
    """Return numbers of a type that NumPy has of itself, and texts as objects."""
    if array.dtype.names is not None and len(array.dtype.names) == 1:  # qint8 and its like
        array = array[array.dtype.names[0]]
    if array.dtype.kind == "V":  # bfloat16, float8 and int4, all values of which these hold
        return array.astype(np.int8 if "int" in array.dtype.name else np.float32)
    if array.dtype.kind in "SU":
        return array.astype(object)
    return array


def _joined(name: str, arrays: Sequence[Array], is_open: bool) -> tuple[Array, Array | None]:
    """Return batches as one array, and the shapes of its rows if they are to be told."""
    ranks = sorted({array.ndim - 1 for array in arrays})
    if len(ranks) > 1:
        raise GraphError("output-rank-varies", name=name, ranks=ranks)
    shapes = [array.shape[1:] for array in arrays]
    largest = tuple(map(max, zip(*shapes, strict=True)))
    if all(shape == largest for shape in shapes):
        joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    else:
        count = sum(map(len, arrays))
        joined = np.full(
            (count, *largest), b"" if arrays[0].dtype == object else 0, arrays[0].dtype
        )
        start = 0
        for item in arrays:
            place = (slice(start, start + len(item)), *map(slice, item.shape[1:]))
            joined[place] = item
            start += len(item)
        is_open = True
    if not is_open:
        return joined, None
    reported = [np.array(shape, np.int64).reshape(1, -1) for shape in shapes]
    return joined, np.repeat(np.concatenate(reported), list(map(len, arrays)), axis=0)


def _empty(feature: Feature) -> Array:
    shape = tuple(size or 0 for size in feature.shape)
    return np.zeros((0, *shape), numpy_type(feature.dtype))


_NEEDED = {"parquet": "pyarrow"}


def format_named(name: str) -> PartFormat:
    """Return a format. GraphError: there is none of this name, or what writes it is missing."""
    if name not in FORMATS:
        raise GraphError(
            "not-a-results-format", name=name, hint=nearest(name, FORMATS), known=FORMATS
        )
    if name in _NEEDED:
        package = _NEEDED[name]
        try:
            importlib.import_module(package)
        except ImportError as error:
            others = ", ".join(format_ for format_ in FORMATS if format_ not in _NEEDED)
            raise GraphError(
                "format-package-missing",
                what=f"--format {name}",
                package=package,
                reason=error,
                install=how_to_install(package),
                otherwise=f"give one of {others}",
            ) from None
    module = importlib.import_module(f"deploykit.batch_inference.formats.{name}")
    return cast(PartFormat, module)
