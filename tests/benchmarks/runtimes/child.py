"""What a process of a runtime does: quantize a model, or hold one and run it whenever it is asked.

    quantize MODEL PICTURES TARGET
    run MODEL PICTURES BATCH THREADS

`run` answers lines of JSON, `["METHOD", ARGUMENT, ...]` of a Model, with lines of JSON. PICTURES is
an .npz file with an array `images`. This needs NumPy alone: deploykit is not there.
"""

import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np

Call = Callable[[np.ndarray], np.ndarray]
"""From images to logits, both batch by batch."""


class Model:
    """A model that is ready to run, and the pictures that it gets."""

    def __init__(self, call: Call, pictures: np.ndarray, batch: int) -> None:
        self.call, self.pictures, self.batch = call, pictures, batch

    def run(self, seconds: float) -> tuple[list[int], int]:
        """Run the first batch for so long; return each call's time and that of all, in ns."""
        clock, images = time.perf_counter_ns, self.pictures[: self.batch]
        calls, first = [], clock()
        while not calls or clock() < first + seconds * 1e9:
            start = clock()
            self.call(images)
            calls.append(clock() - start)
        return calls, clock() - first

    def logits(self, target: str) -> None:
        """Write the logits for all pictures, taken one after another, to an .npy file."""
        np.save(target, np.concatenate([self.call(each[None]).copy() for each in self.pictures]))


def main(
    load: Callable[[str, int, int], Call],
    quantize: Callable[[str, np.ndarray, str], None] | None = None,
) -> None:
    """Do what the command line says; `load` gets the model, the batch and the threads."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    act, model, pictures, *rest = sys.argv[1:]
    images = np.load(pictures)["images"]
    if act == "quantize" and quantize is not None:
        quantize(model, images, rest[0])
        return
    batch, threads = map(int, rest)
    held = Model(load(model, batch, threads), images, batch)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print(json.dumps(getattr(held, method)(*arguments)), file=answers, flush=True)
