"""In which numbers a model is computed, and whether that came true.

TensorFlow multiplies float32 on NVIDIA GPUs from compute capability 8.0 on in TF32, whose products
have 10 bits behind the point instead of 23, unless it is told otherwise. So there float32 has two
names: `fp32` and `tf32`.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.running.tensorflow_start import start_tensorflow

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
TF32_SINCE = (8, 0)
"""The compute capability. Source: NVIDIA, CUDA C++ Programming Guide, section 20."""
_TF32 = "NVIDIA_TF32_OVERRIDE"
_TYPES = {"fp16": "float16", "bf16": "bfloat16"}


def check_precision(precision: str | None, device: str) -> None:
    """Raise GraphError where TensorFlow has no way to compute so on a device."""
    if device == "cpu" and precision in ("tf32", "fp16"):
        raise GraphError("precision-gpu-only", precision=precision)
    if device != "cpu" and precision == "bf16":
        raise GraphError("precision-bf16-cpu-only", device=device)


def variables(precision: str | None, device: str) -> dict[str, str | None]:
    """Return the variables that NVIDIA's libraries read when they start; None removes one."""
    if device == "cpu" or precision not in ("fp32", "tf32"):
        return {}
    return {_TF32: "0" if precision == "fp32" else None}


def set_up(precision: str | None, device: str, config: Any) -> None:
    """Let TensorFlow, in this process and in sessions of a ConfigProto, compute in a precision."""
    rewriter = config.graph_options.rewrite_options
    on = start_tensorflow().rewriter.RewriterConfig.ON
    if device == "cpu" and precision == "bf16":
        rewriter.auto_mixed_precision_onednn_bfloat16 = on
    if device != "cpu":
        if precision == "fp16":
            rewriter.auto_mixed_precision = on
        if precision in ("fp32", "tf32"):
            import tensorflow as tf

            tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")


def float32_of(capabilities: Iterable[tuple[int, int] | None]) -> str:
    """Return what float32 is multiplied in, in this process, on GPUs of these capabilities.

    There are none where the CPU computes. One that is not known is taken for one of before TF32.
    """
    each_has = [each is not None and tuple(each) >= TF32_SINCE for each in capabilities]
    if not each_has or not all(each_has) or os.environ.get(_TF32) == "0":
        return "fp32"
    import tensorflow as tf

    return "tf32" if tf.config.experimental.tensor_float_32_execution_enabled() else "fp32"


def check_computed(precision: str | None, layers: Mapping[str, int], float32: str) -> None:
    """Raise GraphError where TensorFlow does not compute in the precision that is asked for.

    `layers` says how many compute in which type, `float32` what float32 is multiplied in.
    """
    if precision == "tf32" and float32 != "tf32":
        raise GraphError("precision-tf32-missing")
    wanted = _TYPES.get(precision or "")
    if wanted is not None and not layers.get(wanted):
        has = ", ".join(f"{count} in {type_}" for type_, count in sorted(layers.items()))
        raise GraphError("precision-without-effect", precision=precision, has=has or "it has none")


def in_words(precision: str | None, float32: str, layers: Mapping[str, int]) -> str:
    """Return in what it is computed, such as `fp16 (53 of 54 layers), the others tf32`."""
    wanted = _TYPES.get(precision or "")
    if wanted is None:
        return float32
    count, total = layers.get(wanted, 0), sum(layers.values())
    return f"{precision} ({count} of {total} layers)" + (
        f", the others {float32}" if count < total else ""
    )
