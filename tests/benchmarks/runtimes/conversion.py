"""TensorFlow's graph in the peers' formats. TensorFlow does it, in a child process of deploykit."""

import sys
from pathlib import Path

import numpy as np


def to_tflite(model: str, target: str, pictures: str | None = None) -> None:
    """Convert with TensorFlow's converter; with pictures, to full 8 bits as its guide says."""
    import tensorflow as tf

    converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(
        model, ["images"], ["logits"], {"images": [1, 224, 224, 3]}
    )
    if pictures is not None:
        images = np.load(pictures)["images"]
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([each[None]] for each in images)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    Path(target).write_bytes(converter.convert())


def to_onnx(model: str, packages: str, target: str) -> None:
    """Convert with tf2onnx from a folder of packages, of which only what is missing here counts."""
    sys.path.append(packages)
    import tensorflow as tf
    import tf2onnx

    graph = tf.compat.v1.GraphDef.FromString(Path(model).read_bytes())
    tf2onnx.convert.from_graph_def(
        graph, input_names=["images:0"], output_names=["logits:0"], opset=17, output_path=target
    )
