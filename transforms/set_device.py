"""The device attribute of a node selects where TensorFlow runs it."""

import re
from dataclasses import replace

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph

_DEVICE = re.compile(
    r"(/job:(\w+|\*)|/replica:(\d+|\*)|/task:(\d+|\*)|/(device:\w+|(?i:cpu|gpu|tpu)):(\d+|\*))*"
)


def set_device(graph: Graph, *, device: str = "", if_default: bool = False) -> None:
    """Set the device of every node.

    Args:
        device: device name, such as /device:GPU:0 or /job:worker/task:1; empty for none.
        if_default: set it only for nodes without a device.
    """
    if not _DEVICE.fullmatch(device):
        raise PipelineError(
            "unexpected", what="device", got=device, expected="such as /device:CPU:0"
        )
    for node in graph:
        if node.device != device and not (if_default and node.device):
            graph.replace(node, replace(node, device=device))
