"""Two graphs run on the same feeds, in a child process."""

from typing import Any

import numpy as np

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.tensors import Array
from deploykit.verification.differences import Sums


def run_both(
    reference: bytes,
    result: bytes,
    feeds: dict[str, Array],
    names: dict[str, str],
    pairs: list[tuple[str, str]],
    labels: Array | None,
    batch: int | None,
) -> dict[str, Any]:
    """Run two graphs and return their differences; this is done in a child process.

    Where the result cannot be loaded or run, `broken` says why; where the reference does not run on
    made-up inputs, `unverified`. GraphError: TensorFlow cannot load the reference, or not run it on
    given data.
    """
    from deploykit.transforms.core.running.session import Session

    first = Session(reference)
    try:
        second = Session(result)
    except GraphError as error:
        return {"broken": str(error)}
    sums = [Sums(a) for a, _ in pairs]
    total = len(next(iter(feeds.values()))) if batch else 1
    right = np.zeros(2, np.int64)
    for start in range(0, total, batch or 1):
        part = {k: v[start : start + batch] if batch else v for k, v in feeds.items()}
        try:
            expected = first.run([a for a, _ in pairs], part)
        except GraphError as error:
            if batch:
                raise
            return {"unverified": str(error)}
        try:
            found = second.run(
                [b for _, b in pairs], {names[k]: v for k, v in part.items() if k in names}
            )
        except GraphError as error:
            return {"broken": str(error)}
        for each, a, b in zip(sums, expected, found, strict=True):
            each.add(a, b)
        if labels is not None and batch:
            truth = labels[start : start + batch]
            right += [np.sum(np.argmax(x[0], -1) == truth) for x in (expected, found)]
    accuracy = tuple((right / total).tolist()) if labels is not None else None
    return {"differences": [each.difference() for each in sums], "accuracy": accuracy}
