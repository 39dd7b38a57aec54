"""TFLite, as ai-edge-litert has it; XNNPACK runs the model. TensorFlow converts and quantizes."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tests.benchmarks.runtimes.child import Call, main


def load(model: str, batch: int, threads: int) -> Call:
    interpreter = Interpreter(model, num_threads=threads)
    (fed,), (fetched,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(fed["index"], [batch, *fed["shape"][1:]])
    interpreter.allocate_tensors()

    def call(images: np.ndarray) -> np.ndarray:
        interpreter.set_tensor(fed["index"], images)
        interpreter.invoke()
        return interpreter.get_tensor(fetched["index"])

    return call


if __name__ == "__main__":
    main(load)
