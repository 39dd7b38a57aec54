"""ONNX Runtime; quantized as its documentation says for a CPU: static, u8 x s8, per channel."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from tests.benchmarks.runtimes.child import Feeds, Loaded, every, main

LAYERS = ("Conv", "Gemm", "MatMul")


def load(model: str, batch: int, threads: int, in_flight: int) -> Loaded:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = _names(session)

    def call(feeds: Feeds) -> np.ndarray:
        return session.run(None, {name: feeds[own] for name, own in names.items()})[0]

    flying = f", {in_flight} callers of one session" if in_flight > 1 else ""
    return Loaded([call] * in_flight, f"arena, intra-op {threads}{flying}")


def quantize(model: str, samples: Feeds, target: str, kind: str, keep_float: Sequence[str]) -> None:
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    names = _names(onnxruntime.InferenceSession(model))

    class Dataset(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter(every(samples))

        def get_next(self) -> dict[str, np.ndarray] | None:
            feeds = next(self.feeds, None)
            return feeds and {name: feeds[own] for name, own in names.items()}

    prepared = f"{target}.prepared"
    # Symbolic shapes are for transformers, and it does not find all of those of this encoder.
    quant_pre_process(model, prepared, skip_symbolic_shape=True)
    quantization.quantize_static(
        prepared,
        target,
        Dataset(),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        nodes_to_exclude=list(keep_float),
        # Without VNNI, sums of 8-bit products saturate; 7-bit weights are its way out.
        reduce_range="vnni" not in Path("/proc/cpuinfo").read_text(),
    )
    Path(prepared).unlink()


def layers(model: str) -> list[str]:
    import onnx

    return [node.name for node in onnx.load(model).graph.node if node.op_type in LAYERS]


def _names(session: onnxruntime.InferenceSession) -> dict[str, str]:
    """Return the names of the inputs, and what TensorFlow's graph calls them."""
    return {each.name: each.name.removesuffix(":0") for each in session.get_inputs()}


if __name__ == "__main__":
    main(load, quantize, layers)
