"""OpenVINO, which reads TensorFlow's graphs itself; NNCF quantizes with its defaults."""

import numpy as np
import openvino

from tests.benchmarks.runtimes.child import Call, Feeds, every, main


def load(model: str, batch: int, threads: int, in_flight: int) -> tuple[list[Call], str]:
    hint = "LATENCY" if in_flight == 1 else "THROUGHPUT"
    options = {
        "PERFORMANCE_HINT": hint,
        "NUM_STREAMS": in_flight,
        "INFERENCE_NUM_THREADS": threads * in_flight,
        "INFERENCE_PRECISION_HINT": "f32",  # else it takes bfloat16 where the CPU has it
    }
    read = _read(model, batch)
    compiled = openvino.compile_model(read, "CPU", options)
    names = _names(read)

    def caller() -> Call:
        request = compiled.create_infer_request()

        def call(feeds: Feeds) -> np.ndarray:
            given = {port: feeds[own] for port, own in names.items()}
            return request.infer(given, share_inputs=True)[0]

        return call

    words = f"{hint}, {threads * in_flight} threads, {in_flight} streams"
    return [caller() for _ in range(in_flight)], words


def quantize(model: str, samples: Feeds, target: str, kind: str) -> None:
    import nncf

    read = _read(model, 1)
    names = _names(read)
    data = nncf.Dataset(
        every(samples), lambda feeds: {port: feeds[own] for port, own in names.items()}
    )
    model_type = nncf.ModelType.TRANSFORMER if kind == "transformer" else None
    small = nncf.quantize(read, data, model_type=model_type)
    openvino.save_model(small, target, compress_to_fp16=False)


def _read(model: str, batch: int) -> openvino.Model:
    found = openvino.Core().read_model(model)
    shapes = {each: each.partial_shape for each in found.inputs}
    for shape in shapes.values():
        shape[0] = batch
    found.reshape(shapes)
    return found


def _names(model: openvino.Model) -> dict[int, str]:
    """Return the numbers of the inputs, and what TensorFlow's graph calls them."""
    return {number: each.any_name.removesuffix(":0") for number, each in enumerate(model.inputs)}


if __name__ == "__main__":
    main(load, quantize)
