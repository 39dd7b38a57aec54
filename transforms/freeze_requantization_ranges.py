"""A range that was measured on enough data does not need to be measured in each run."""

import math
import re

import numpy as np

from deploykit.transforms.common.errors import GraphError, PipelineError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import tensor_name
from deploykit.transforms.untrusted.files import lines

# What insert_logging(op=RequantizationRange, show_name=true, message="__requant_min_max:") prints.
_RECORD = re.compile(r"(?:^|;)([^;]+)__print__;__requant_min_max:\[([^][;]*)\]\[([^][;]*)\]")


def freeze_requantization_ranges(
    graph: Graph,
    *,
    min_max_log_file: str,
    min_percentile: float = 5.0,
    max_percentile: float = 5.0,
) -> None:
    """Replace RequantizationRange by constants: the ranges in a log of earlier runs.

    The log is the standard error of a graph after `insert_logging(op=RequantizationRange,
    show_name=true, message="__requant_min_max:")`. Lines without a range of finite numbers are
    skipped, and a minimum above zero counts as zero, which Requantize requires.
    FileError: the log cannot be read. GraphError: it contains no range, or names a node that is
    missing or not a RequantizationRange, or the percentiles leave no range.

    Args:
        min_max_log_file: path of the log.
        min_percentile: percentage of the lowest minima that count as outliers.
        max_percentile: percentage of the highest maxima that count as outliers.
    """
    for name, value in (("min", min_percentile), ("max", max_percentile)):
        if not 0 <= value <= 100:
            raise PipelineError(
                "out-of-range", name=f"{name}_percentile", expected="from 0 to 100", got=value
            )
    moves: dict[str, str] = {}
    for name, (minima, maxima) in _records(min_max_log_file).items():
        node = graph[name]
        if node.op != "RequantizationRange":
            raise GraphError("ranges-log-node", node=name, file=min_max_log_file, op=node.op)
        low = min(_at(minima, min_percentile / 100), 0.0)
        high = _at(maxima, 1 - max_percentile / 100)
        if high < low:
            raise GraphError(
                "ranges-log-percentiles",
                node=name,
                low_percentile=min_percentile,
                high_percentile=max_percentile,
                low=low,
                high=high,
            )
        for port, (part, value) in enumerate((("min", low), ("max", high))):
            frozen = np.array(value, np.float32)
            const = graph.constant_beside(node, frozen, f"{name}/frozen_{part}")
            moves[tensor_name(name, port)] = graph.absorb([node], into=const).name
    graph.redirect(moves)


def _records(path: str) -> dict[str, tuple[list[float], list[float]]]:
    """Return the minima and maxima that a log contains for each node; the last range of a line."""
    values: dict[str, tuple[list[float], list[float]]] = {}
    for line in lines(path, "log"):
        for name, low, high in _RECORD.findall(line.decode(errors="replace"))[-1:]:
            numbers = _number(low), _number(high)
            if all(map(math.isfinite, numbers)):
                minima, maxima = values.setdefault(name, ([], []))
                minima.append(numbers[0])
                maxima.append(numbers[1])
    if not values:
        raise GraphError("ranges-log-empty", source=path)
    return values


def _number(text: str) -> float:
    try:
        return float(np.float32(text))
    except ValueError:
        return math.nan


def _at(values: list[float], fraction: float) -> float:
    """Return the value below which this fraction of all values is, as the original tool counts."""
    index = math.floor(len(values) * fraction + 0.5)
    return sorted(values)[min(index, len(values) - 1)]
