"""The Graph Transform Tool itself, as a script: the peer of `deploykit transform`.

TensorFlow 2.21 still holds it behind a private binding, without the command that was in front.
"""

import sys
from pathlib import Path


def transform(source: str, target: str, inputs: str, outputs: str, transforms: str) -> None:
    """Read a GraphDef, transform it, write the result."""
    content = Path(source).read_bytes()
    import tensorflow  # noqa: F401  the binding needs its libraries
    from tensorflow.python.util import _pywrap_transform_graph as tool

    arguments = (text.encode() for text in (inputs, outputs, transforms))
    Path(target).write_bytes(tool.TransformGraphWithStringInputs(content, *arguments))


if __name__ == "__main__":
    transform(*sys.argv[1:])
