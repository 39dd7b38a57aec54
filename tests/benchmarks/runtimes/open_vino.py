"""OpenVINO, which reads TensorFlow's graphs itself; NNCF quantizes with its defaults."""

import time
from collections.abc import Sequence

import numpy as np
import openvino

from tests.benchmarks.runtimes.child import Feeds, Loaded, every, main

LAYERS = ("Convolution", "GroupConvolution", "MatMul")


def load(model: str, batch: int, threads: int, in_flight: int) -> Loaded:
    hint = "LATENCY" if in_flight == 1 else "THROUGHPUT"
    options = {
        "PERFORMANCE_HINT": hint,
        "NUM_STREAMS": in_flight,
        "INFERENCE_NUM_THREADS": threads * in_flight,
        "INFERENCE_PRECISION_HINT": "f32",  # else it takes bfloat16 where the CPU has it
    }
    read = _read(model, batch)
    compiled = openvino.compile_model(read, "CPU", options)
    names, request = _names(read), compiled.create_infer_request()

    def call(feeds: Feeds) -> np.ndarray:
        return request.infer(_given(names, feeds), share_inputs=True)[0]

    def flight(feeds: Feeds, seconds: float) -> list[int]:
        clock, count, given = time.perf_counter_ns, 0, _given(names, feeds)
        start = clock()
        while clock() < start + seconds * 1e9 or count < in_flight:
            queue.start_async(given, share_inputs=True)  # waits until a request is free
            count += 1
        queue.wait_all()
        return [(clock() - start) * in_flight // count] * count  # one by one it does not tell

    queue = openvino.AsyncInferQueue(compiled, in_flight)
    words = f"{hint}, {threads * in_flight} threads, {in_flight} streams"
    return Loaded([call] * in_flight, words, flight)


def quantize(model: str, samples: Feeds, target: str, kind: str, keep_float: Sequence[str]) -> None:
    import nncf

    read = _read(model, 1)
    names = _names(read)
    data = nncf.Dataset(every(samples), lambda feeds: _given(names, feeds))
    model_type = nncf.ModelType.TRANSFORMER if kind == "transformer" else None
    ignored = nncf.IgnoredScope(names=list(keep_float))
    small = nncf.quantize(read, data, model_type=model_type, ignored_scope=ignored)
    openvino.save_model(small, target, compress_to_fp16=False)


def layers(model: str) -> list[str]:
    return [each.friendly_name for each in _layers(_read(model, 1))]


def _layers(model: openvino.Model) -> list[openvino.Node]:
    return [each for each in model.get_ordered_ops() if each.get_type_name() in LAYERS]


def _read(model: str, batch: int) -> openvino.Model:
    found = openvino.Core().read_model(model)
    for number, layer in enumerate(_layers(found)):  # else each reading names them anew
        layer.friendly_name = f"layer_{number}"
    shapes = {each: each.partial_shape for each in found.inputs}
    for shape in shapes.values():
        shape[0] = batch
    found.reshape(shapes)
    return found


def _names(model: openvino.Model) -> dict[int, str]:
    """Return the numbers of the inputs, and what TensorFlow's graph calls them."""
    return {number: each.any_name.removesuffix(":0") for number, each in enumerate(model.inputs)}


def _given(names: dict[int, str], feeds: Feeds) -> dict[int, np.ndarray]:
    return {number: feeds[name] for number, name in names.items()}


if __name__ == "__main__":
    main(load, quantize, layers)
