"""What a process of a runtime does: quantize a model, or hold one and run it whenever it is asked.

    quantize MODEL SAMPLES TARGET KIND COUNT LAYER...
    layers MODEL
    run MODEL SAMPLES BATCH THREADS IN_FLIGHT

`run` answers lines of JSON, `["METHOD", ARGUMENT, ...]` of a Model, with lines of JSON. SAMPLES is
an .npz file of arrays by input name; the first axis are the samples, and other arrays, which the
model does not read, are left alone. The first COUNT samples calibrate, and each LAYER stays float.
`layers` prints a list of names. This needs NumPy alone: deploykit is not there.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Feeds = Mapping[str, np.ndarray]
"""Arrays by input name."""
Call = Callable[[Feeds], np.ndarray]
"""From a batch of each input to that of the output."""


@dataclass(frozen=True)
class Loaded:
    """A function for each call in flight, and in words how the runtime is set.

    `flight` is given where calls in flight are not best made by a thread each: it makes them for so
    many seconds, and returns what each took in ns.
    """

    calls: Sequence[Call]
    settings: str
    flight: Callable[[Feeds, float], list[int]] | None = None


class Model:
    """A model that is ready to run, and the samples that it gets."""

    def __init__(self, loaded: Loaded, samples: Feeds, batch: int) -> None:
        self._loaded, self.samples, self.batch = loaded, samples, batch

    def settings(self) -> str:
        """Return how it is set, in words."""
        return self._loaded.settings

    def run(self, seconds: float) -> tuple[list[int], int]:
        """Run the first batch for so long; return each call's time and that of all, in ns."""
        feeds = {name: array[: self.batch] for name, array in self.samples.items()}
        first = time.perf_counter_ns()
        calls, flight = self._loaded.calls, self._loaded.flight
        if len(calls) == 1:
            found = _loop(calls[0], feeds, seconds)
        else:
            found = (flight or self._in_flight)(feeds, seconds)
        return found, time.perf_counter_ns() - first

    def outputs(self, target: str) -> None:
        """Write the outputs for all samples, taken one after another, to an .npy file."""
        count = len(next(iter(self.samples.values())))
        call = self._loaded.calls[0]
        each = [call(one(self.samples, number)).copy() for number in range(count)]
        np.save(target, np.concatenate(each))

    def _in_flight(self, feeds: Feeds, seconds: float) -> list[int]:
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda call=call: found.extend(_loop(call, feeds, seconds)))
            for call in self._loaded.calls
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


def one(samples: Feeds, number: int) -> dict[str, np.ndarray]:
    """Return one sample as a batch."""
    return {name: array[number : number + 1] for name, array in samples.items()}


def every(samples: Feeds) -> list[dict[str, np.ndarray]]:
    """Return the samples, each as a batch."""
    return [one(samples, number) for number in range(len(next(iter(samples.values()))))]


def _loop(call: Call, feeds: Feeds, seconds: float) -> list[int]:
    clock, taken = time.perf_counter_ns, []
    end = clock() + seconds * 1e9
    while not taken or clock() < end:
        start = clock()
        call(feeds)
        taken.append(clock() - start)
    return taken


def main(
    load: Callable[[str, int, int, int], Loaded],
    quantize: Callable[[str, Feeds, str, str, Sequence[str]], None] | None = None,
    layers: Callable[[str], list[str]] | None = None,
) -> None:
    """Do what the command line says.

    `load` gets the model, the batch, the threads of a call and the calls in flight; `quantize` the
    model, the samples, the target, the kind of net and the layers that stay float; `layers` names
    all of a model.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    act, model, *rest = sys.argv[1:]
    if act == "layers" and layers is not None:
        print(json.dumps(layers(model)), file=answers, flush=True)
        return
    file, *rest = rest
    with np.load(file) as arrays:
        samples = dict(arrays)
    if act == "quantize" and quantize is not None:
        target, kind, count, *keep_float = rest
        few = {name: array[: int(count)] for name, array in samples.items()}
        quantize(model, few, target, kind, keep_float)
        return
    batch, threads, in_flight = map(int, rest)
    held = Model(load(model, batch, threads // in_flight, in_flight), samples, batch)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print(json.dumps(getattr(held, method)(*arguments)), file=answers, flush=True)
