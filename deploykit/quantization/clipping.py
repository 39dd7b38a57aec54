"""The range on which 8 bits lose least: what it cuts off against how coarse it is.

Inside a range the rounding error is taken as even over one step, so its mean square is step^2 / 12;
zero is a level of its own and has none. Outside, the error is the distance to the range.
"""

import numpy as np

from deploykit.transforms.core.tensors import Array

BINS = 2048  # eight a level
_STRIDE = 16  # bins between two ends that are tried: 128 a side
_STEPS = 255


def least_error_range(counts: Array, low: float, high: float) -> tuple[float, float]:
    """Return the range within [low, high] of least mean squared error.

    `counts` says how many values lie in each of BINS equal parts. Zero stays inside a range that
    holds it.
    """
    edges = np.linspace(low, high, len(counts) + 1)
    centers = (edges[1:] + edges[:-1]) / 2
    counts = counts.astype(np.float64)
    powers = [counts, counts * centers, counts * centers**2]
    # Values below each edge: how many, their sum, the sum of their squares.
    number, total, squares = (np.concatenate([[0.0], np.cumsum(p)]) for p in powers)
    tried = np.arange(0, len(edges), _STRIDE)
    lows = tried[edges[tried] <= 0] if low < 0 else tried[:1]
    highs = tried[edges[tried] >= 0] if high > 0 else tried[-1:]
    below, above = edges[lows], edges[highs]
    cut_below = below**2 * number[lows] - 2 * below * total[lows] + squares[lows]
    cut_above = (
        above**2 * (number[-1] - number[highs])
        - 2 * above * (total[-1] - total[highs])
        + (squares[-1] - squares[highs])
    )
    # 8 bits must hold zero exactly, so a range that lacks it is widened to it.
    step = (np.maximum(above, 0) - np.minimum(below, 0)[:, np.newaxis]) / _STEPS
    zeros = counts[np.clip(np.searchsorted(edges, 0, "right") - 1, 0, len(counts) - 1)]
    inside = number[highs] - number[lows][:, np.newaxis] - (zeros if low <= 0 <= high else 0)
    errors = inside * step**2 / 12 + cut_below[:, np.newaxis] + cut_above
    errors[step <= 0] = np.inf
    at = np.unravel_index(np.argmin(errors), errors.shape)
    return float(below[at[0]]), float(above[at[1]])
