"""TensorFlow's graph in the peers' formats. TensorFlow does it, in a child process of deploykit."""

import csv
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def to_tflite(
    model: str,
    shapes: Mapping[str, Sequence[int]],
    output: str,
    target: str,
    samples: str | None = None,
    keep_float: Sequence[str] = (),
) -> None:
    """Convert with TensorFlow's converter; with samples, to full 8 bits as its guide says.

    The model takes batches of these shapes alone: those of transformers cannot be resized. What has
    no kernel in 8 bits, such as looking words up, stays float, and so do the layers `keep_float`.
    """
    import tensorflow as tf

    converter = _converter(model, shapes, output, samples)
    if keep_float:
        options = tf.lite.experimental.QuantizationDebugOptions(denylisted_nodes=list(keep_float))
        debugger = tf.lite.experimental.QuantizationDebugger(
            converter=converter,
            debug_options=options,
            debug_dataset=converter.representative_dataset,
        )
        content = debugger.get_nondebug_quantized_model()
    else:
        content = converter.convert()
    Path(target).write_bytes(content)


def tflite_noise(
    model: str, shapes: Mapping[str, Sequence[int]], output: str, samples: str
) -> dict[str, float]:
    """Return the noise of each layer as TensorFlow's guide ranks them, by the name it is kept by.

    That is the root of the mean squared error in steps of the layer's codes.
    """
    import tensorflow as tf

    converter = _converter(model, shapes, output, samples)
    debugger = tf.lite.experimental.QuantizationDebugger(
        converter=converter, debug_dataset=converter.representative_dataset
    )
    debugger.run()
    with tempfile.TemporaryFile("w+") as file:
        debugger.layer_statistics_dump(file)
        file.seek(0)
        return {
            row["tensor_name"]: math.sqrt(float(row["mean_squared_error"])) / float(row["scale"])
            for row in csv.DictReader(file)
        }


def _converter(
    model: str, shapes: Mapping[str, Sequence[int]], output: str, samples: str | None
) -> Any:
    import tensorflow as tf

    converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(
        model, list(shapes), [output], shapes
    )
    if samples is not None:
        with np.load(samples) as arrays:
            columns = [arrays[name] for name in shapes]
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        (batch,) = {shape[0] for shape in shapes.values()}
        starts = range(0, len(columns[0]) - batch + 1, batch)
        converter.representative_dataset = lambda: (
            [column[start : start + batch] for column in columns] for start in starts
        )
        converter.target_spec.supported_ops = [
            tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.lite.OpsSet.TFLITE_BUILTINS,
        ]  # fmt: skip
    return converter


def to_onnx(model: str, inputs: Sequence[str], output: str, packages: str, target: str) -> None:
    """Convert with tf2onnx from a folder of packages, of which only what is missing here counts."""
    sys.path.append(packages)
    import tensorflow as tf
    import tf2onnx

    graph = tf.compat.v1.GraphDef.FromString(Path(model).read_bytes())
    _write_erf(graph)
    tf2onnx.convert.from_graph_def(
        graph,
        input_names=[f"{name}:0" for name in inputs],
        output_names=[f"{output}:0"],
        opset=17,
        output_path=target,
    )


def _write_erf(graph: Any) -> None:
    """Replace erfc(-x * c) of a GraphDef's GELUs, which tf2onnx does not know, by 1 + erf(x * c).

    That is how ONNX Runtime knows a GELU, so it makes one op of it.
    """
    nodes = {node.name: node for node in graph.node}
    for node in [each for each in graph.node if each.op == "Erfc"]:
        product = nodes[node.input[0]]
        negated = nodes[product.input[0]]
        if (product.op, negated.op) != ("Mul", "Neg"):
            raise ValueError(f"{node.name} is not the Erfc of a GELU")
        one, scaled, erf = (graph.node.add(name=f"{node.name}/{n}") for n in ("1", "x", "erf"))
        for each, op, inputs in (
            (scaled, "Mul", [negated.input[0], product.input[1]]),
            (erf, "Erf", [scaled.name]),
            (node, "AddV2", [erf.name, one.name]),
        ):
            each.op, each.input[:] = op, inputs
            each.attr["T"].CopyFrom(product.attr["T"])
        one.op = "Const"
        one.attr["dtype"].CopyFrom(product.attr["T"])
        one.attr["value"].tensor.dtype = product.attr["T"].type
        one.attr["value"].tensor.tensor_shape.SetInParent()
        one.attr["value"].tensor.float_val.append(1)
