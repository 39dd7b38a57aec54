"""TFLite, as ai-edge-litert has it; XNNPACK runs the model. TensorFlow converts and quantizes.

A model is a file for each size of a batch: `MODEL.b1`, `MODEL.b8`.
"""

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tests.benchmarks.runtimes.child import Call, Feeds, Loaded, main


def load(model: str, batch: int, threads: int, in_flight: int) -> Loaded:
    words = f"XNNPACK, {in_flight} interpreters of {threads} threads"
    return Loaded([_call(model, batch, threads) for _ in range(in_flight)], words)


def _call(model: str, batch: int, threads: int) -> Call:
    interpreter = Interpreter(f"{model}.b{batch}", num_threads=threads)
    interpreter.allocate_tensors()
    fed = {
        each["name"].removesuffix(":0"): each["index"] for each in interpreter.get_input_details()
    }
    (fetched,) = interpreter.get_output_details()

    def call(feeds: Feeds) -> np.ndarray:
        for name, index in fed.items():
            interpreter.set_tensor(index, feeds[name])
        interpreter.invoke()
        return interpreter.get_tensor(fetched["index"])

    return call


if __name__ == "__main__":
    main(load)
