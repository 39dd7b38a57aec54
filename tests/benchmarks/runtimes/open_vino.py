"""OpenVINO, which reads TensorFlow's graphs itself; NNCF quantizes with its defaults."""

import numpy as np
import openvino

from tests.benchmarks.runtimes.child import Call, main


def load(model: str, batch: int, threads: int) -> Call:
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",  # else it takes bfloat16 where the CPU has it
    }
    compiled = openvino.compile_model(_read(model, batch), "CPU", options)
    request = compiled.create_infer_request()
    return lambda images: request.infer([images], share_inputs=True)[0]


def quantize(model: str, images: np.ndarray, target: str) -> None:
    import nncf

    pictures = nncf.Dataset(list(images), lambda each: each[None])
    openvino.save_model(nncf.quantize(_read(model, 1), pictures), target, compress_to_fp16=False)


def _read(model: str, batch: int) -> openvino.Model:
    found = openvino.Core().read_model(model)
    shape = found.input(0).partial_shape
    shape[0] = batch
    found.reshape(shape)
    return found


if __name__ == "__main__":
    main(load, quantize)
