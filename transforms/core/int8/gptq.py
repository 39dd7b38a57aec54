"""Rounding of weights by what it does to a layer's outputs, not by the distance of each weight.

The squared error of an output channel is e H e for an error e of its weights, where H are the
second moments of the layer's inputs. Inputs are correlated, so the error of one weight can be taken
back by others. Source: E. Frantar et al., GPTQ: Accurate Post-Training Quantization for
Generative Pre-trained Transformers, 2023; then one pass of coordinate descent.
"""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.core.tensors import Array

DAMPING = 0.1  # of the mean diagonal of H
_BLOCK = 64  # rows whose errors are spread at once
_DESCENTS = 3  # passes of coordinate descent where it is all that is done


@dataclass(frozen=True)
class Lattice:
    """Which multiples of the steps the weights [inputs, outputs] of a product may become."""

    levels: Array
    """float64 [outputs]: the largest one, in either direction."""
    partners: Array | None = None
    """int [inputs]: the input whose multiple is summed with this one's; -1: none has this."""
    pair: int = 0
    """What two partners of one sign may sum to."""

    def nearest(self, row: int, values: Array, multiples: Array) -> Array:
        """Return the allowed multiples [outputs] of an input that are nearest to some values."""
        low, high = -self.levels, self.levels
        if self.partners is not None and self.partners[row] >= 0:
            other = multiples[self.partners[row]]
            high = np.minimum(high, self.pair - np.maximum(other, 0))
            low = np.maximum(low, -self.pair - np.minimum(other, 0))
        return np.clip(np.rint(values), low, high)


def round_product(weights: Array, moments: Array, lattice: Lattice) -> Array:
    """Return the multiples [inputs, outputs] of least output error that two passes find.

    Args:
        weights: float64 [inputs, outputs], in units of each output's step.
        moments: float64 [inputs, inputs], of the inputs about their mean where the bias of the
            layer takes back the mean error.
        lattice: the multiples that are allowed.
    """
    damped = _damped(moments)
    order = np.argsort(-np.diag(damped), kind="stable")
    inverse = np.linalg.inv(damped[np.ix_(order, order)])
    spread = np.linalg.cholesky((inverse + inverse.T) / 2).T  # upper: inverse = spread.T @ spread
    rest = weights[order]
    found = np.zeros_like(weights)
    for start in range(0, len(order), _BLOCK):
        end = min(start + _BLOCK, len(order))
        errors = np.empty((end - start, weights.shape[1]))
        for row in range(start, end):
            place = order[row]
            found[place] = lattice.nearest(place, rest[row], found)
            error = (rest[row] - found[place]) / spread[row, row]
            errors[row - start] = error
            rest[row + 1 : end] -= np.outer(spread[row, row + 1 : end], error)
        rest[end:] -= spread[start:end, end:].T @ errors
    return _descended(weights, damped, found, lattice)


def round_channels(weights: Array, moments: Array, levels: Array) -> Array:
    """Return the multiples [channels, inputs, outputs] of products that share no inputs.

    Args:
        weights: float64 [channels, inputs, outputs], in units of each output's step.
        moments: float64 [channels, inputs, inputs], as in `round_product`.
        levels: float64 [channels, outputs]: the largest multiple, in either direction.
    """
    damped = _damped(moments)
    curvature = np.diagonal(damped, axis1=1, axis2=2)
    found = np.clip(np.rint(weights), -levels[:, np.newaxis], levels[:, np.newaxis])
    gradient = damped @ (found - weights)
    for _ in range(_DESCENTS):
        for row in range(weights.shape[1]):
            best = found[:, row] - gradient[:, row] / curvature[:, row, np.newaxis]
            change = np.clip(np.rint(best), -levels, levels) - found[:, row]
            found[:, row] += change
            gradient += damped[:, :, row, np.newaxis] * change[:, np.newaxis]
    return found


def _descended(weights: Array, damped: Array, found: Array, lattice: Lattice) -> Array:
    """Return multiples after each input was given its best one while the others stay."""
    gradient = damped @ (found - weights)
    for start in range(0, len(found), _BLOCK):
        end = min(start + _BLOCK, len(found))
        before, inside = found[start:end].copy(), gradient[start:end].copy()
        for row in range(start, end):
            best = found[row] - inside[row - start] / damped[row, row]
            change = lattice.nearest(row, best, found) - found[row]
            found[row] += change
            inside += np.outer(damped[start:end, row], change)
        gradient += damped[:, start:end] @ (found[start:end] - before)
    return found


def _damped(moments: Array) -> Array:
    """Return moments that can be inverted; those of inputs that are always equal become even."""
    size = moments.shape[-1]
    mean = np.trace(moments, axis1=-2, axis2=-1)[..., np.newaxis, np.newaxis] / size
    small = np.finfo(np.float32).tiny
    damped: Array = moments + np.where(mean > small, DAMPING * mean, 1.0) * np.eye(size)
    return damped
