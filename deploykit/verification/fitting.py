"""Fitting of user arrays to a graph input: array name, dtype and rank."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from deploykit.storage.csv_files import is_number
from deploykit.storage.tables import UnusableColumn, numbers_of, unusable_columns
from deploykit.transforms.common.errors import GraphError, unknown_name
from deploykit.transforms.ir.tensors import Array, numpy_type

logger = logging.getLogger("deploykit")


def name_in(
    data: Mapping[str, Any],
    names: Sequence[str],
    type_: str,
    shape: tuple[int, ...] | None,
    labels: Collection[str] | None,
) -> str:
    """Return the name of an input's array: one of its names, or the only suitable array.

    The only array of strings, or of numbers, is suitable. `labels` are arrays to ignore; None
    means that the graph has several inputs. A column of a table that cannot be an array may be the
    one; reading it is an error that says why.
    GraphError: no array is suitable.
    """
    found = chosen_name(data, names, type_, shape, labels)
    if found not in names:
        tell_only(names[0], found)
    return found


def chosen_name(
    data: Mapping[str, Any],
    names: Sequence[str],
    type_: str,
    shape: tuple[int, ...] | None,
    labels: Collection[str] | None,
) -> str:
    """Return the name that `name_in` returns, without logging it. GraphError: as `name_in`."""
    unusable = unusable_columns(data)
    first = next((name for name in names if name in data or name in unusable), None)
    if first is not None:
        return first
    if labels is None:  # each of several inputs takes an array of its name
        raise unknown_name("array for input", names[0], sorted(data))
    others = [name for name in data if name not in labels]
    are_texts = {other: np.asarray(data[other]).dtype.kind in "OSUV" for other in others}
    unusable = {name: column for name, column in unusable.items() if name not in labels}
    only = only_fitting(are_texts, unusable, type_, shape)
    if not only:
        raise unknown_name("array for input", names[0], sorted(data))
    return only[0]


def only_of_type(are_texts: Mapping[str, bool], type_: str) -> list[str]:
    """Return the only name, or else the only one whose array has the kind of the input.

    `are_texts` contains, by name, whether the array consists of strings.
    """
    names = list(are_texts)
    if len(names) > 1:
        names = [name for name, is_text in are_texts.items() if is_text is (type_ == "string")]
    return names if len(names) == 1 else []


def only_fitting(
    are_texts: Mapping[str, bool],
    unusable: Mapping[str, UnusableColumn],
    type_: str,
    shape: tuple[int, ...] | None,
) -> list[str]:
    """Return `only_of_type`, also of the columns that cannot be arrays but might be the one.

    Such a column counts if it may fit the input, or if no name is left without it. It is returned
    rather than another one, so that reading it is an error that says why.
    """
    texts = {name: column.is_text for name, column in unusable.items()}
    known = {name: is_text for name, is_text in texts.items() if is_text is not None}
    fitting = {name: known[name] for name in known if unusable[name].may_fit(type_, shape)}
    found = only_of_type({**are_texts, **fitting}, type_)
    return found or only_of_type({**are_texts, **known}, type_)


def tell_only(name: str, array: str) -> None:
    """Log that an input takes an array of another name."""
    logger.info("input '%s' takes the only fitting array of the data, '%s'", name, array)


def of_type(name: str, array: Array, type_: str) -> Array:
    """Convert an array like `in_type`, and log a conversion from floats to integers."""
    result = in_type(name, array, type_)
    if array.dtype.kind == "f" and result.dtype.kind in "iu":
        logger.info(
            "input '%s' takes %s: the %s values are integers and are converted",
            name,
            type_,
            array.dtype,
        )
    return result


def in_type(name: str, array: Array, type_: str) -> Array:
    """Convert an array to the dtype of an input. GraphError: its values do not fit.

    Values only change by rounding. Whole floats become integers, integers in range become narrower
    ones, 0 and 1 become bool, and numeric strings become numbers.
    """
    requested = numpy_type(type_)
    if requested.kind == "O" and array.dtype.kind in "SV":
        return _bytes_of(array)
    if requested.kind != "O" and array.dtype.kind in "OSU":
        array = _numbers_of(name, array, type_)
    if array.dtype == requested or (requested.kind == "O" and array.dtype.kind in "OU"):
        return array.astype(requested, copy=False)
    is_real = array.dtype.kind in "biuf" and requested.kind in "biuf"
    if requested.kind == "O" or not (is_real or np.can_cast(array.dtype, requested, "same_kind")):
        raise GraphError(
            "does-not-fit", what=f"the data for input '{name}'", got=array.dtype, expected=type_
        )
    with np.errstate(invalid="ignore", over="ignore"):
        result = array.astype(requested)
        fits = _is_kept(array, result)
    if not fits.all():
        place = tuple(np.argwhere(~fits)[0].tolist())
        misfit = "is beyond the range of this type. Scale the data, or convert it"
        if requested.kind == "b":
            misfit = "is neither 0 nor 1"
        elif requested.kind in "iu" and array.dtype.kind == "f":
            misfit = "is not an integer of this type. Round the data, or convert it"
        raise GraphError(
            "data-value-misfit",
            name=name,
            dtype=array.dtype,
            expected=type_,
            value=array[place],
            index=place,
            misfit=misfit,
        )
    return np.asarray(result)


def _is_kept(array: Array, result: Array) -> Array:
    """Return for each value whether a conversion retained it, up to rounding to a float."""
    kind = result.dtype.kind
    if array.dtype.kind == "b":
        fits = np.ones(array.shape, bool)
    elif kind == "b":
        fits = (array == 0) | (array == 1)
    elif kind in "iu":
        limits = np.iinfo(result.dtype)
        fits = (array >= limits.min) & (array <= limits.max)
        if array.dtype.kind == "f":  # the largest integer may be rounded up in floats
            fits = (array >= float(limits.min)) & (array < float(limits.max) + 1)
            fits &= (array == np.rint(array)) & np.isfinite(array)
    else:
        fits = np.isfinite(result) | ~np.isfinite(array)
    return np.asarray(fits)


_WORDS = {"true": 1, "false": 0}


def _numbers_of(name: str, array: Array, type_: str) -> Array:
    """Convert strings to numbers. GraphError: one is not a number."""
    cells = [
        item.encode() if isinstance(item, str) else item for item in array.reshape(-1).tolist()
    ]
    if type_ == "bool":
        cells = [
            _WORDS.get(str(cell, "latin-1").lower(), cell) if type(cell) is bytes else cell
            for cell in cells
        ]
    wrong = next((n for n, item in enumerate(cells) if not is_number(item)), None)
    if wrong is None:
        return numbers_of(cells, are_whole="int" in type_).reshape(array.shape)
    shown = cells[wrong]
    shown = shown.decode(errors="replace") if isinstance(shown, bytes) else str(shown)
    raise GraphError("data-not-number", name=name, type=type_, got=shown[:80], index=wrong)


def _bytes_of(array: Array) -> Array:
    """Return strings as bytes, with the trailing zeros that NumPy would strip."""
    flat = array.reshape(-1)
    result = flat.astype(object)
    if array.dtype.kind == "V" or any(b"\0" in item for item in result):
        result[:] = [flat[n : n + 1].tobytes() for n in range(len(flat))]
    return result.reshape(array.shape)


def of_rank(name: str, array: Array, shape: tuple[int, ...] | None, axis: int = 0) -> Array:
    """Return an array with the rank of an input. GraphError: its shape does not fit.

    `axis` is that of the samples, of which there may be any number. A scalar input takes an array
    of one value. A vector is a list of samples with one value each.
    """
    if shape is None or _fits(array.shape, shape, axis):
        return array
    if shape == () and array.size == 1:
        return array.reshape(())
    if shape == () and array.ndim == 1:
        return array
    if array.ndim == 1 and len(shape) == 2 and shape[1] in (-1, 1) and not axis:
        if shape[1] < 0:
            words = "the data for input '%s' has one axis: it is read as %d samples of 1 value"
            logger.warning(words, name, len(array))
        return array[:, None]
    raise GraphError(
        "data-shape", name=name, shape=array.shape, expected=[None if s < 0 else s for s in shape]
    )


def _fits(actual: tuple[int, ...], declared: tuple[int, ...], axis: int) -> bool:
    """Return whether samples of this shape can be fed, with their axis split into batches."""
    return len(actual) == len(declared) and all(
        s < 0 or s == a or n == axis for n, (a, s) in enumerate(zip(actual, declared, strict=True))
    )
