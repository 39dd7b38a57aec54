"""ONNX Runtime; quantized as its documentation says for a CPU: static, u8 x s8, per channel."""

from pathlib import Path

import numpy as np
import onnxruntime

from tests.benchmarks.runtimes.child import Call, main


def load(model: str, batch: int, threads: int) -> Call:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images})[0]


def quantize(model: str, images: np.ndarray, target: str) -> None:
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Pictures(quantization.CalibrationDataReader):
        def __init__(self, name: str) -> None:
            self.feeds = ({name: each[None]} for each in images)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.feeds, None)

    prepared = f"{target}.prepared"
    quant_pre_process(model, prepared, skip_symbolic_shape=True)  # that is for transformers
    name = onnxruntime.InferenceSession(model).get_inputs()[0].name
    quantization.quantize_static(
        prepared,
        target,
        Pictures(name),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        # Without VNNI, sums of 8-bit products saturate; 7-bit weights are its way out.
        reduce_range="vnni" not in Path("/proc/cpuinfo").read_text(),
    )
    Path(prepared).unlink()


if __name__ == "__main__":
    main(load, quantize)
