"""Finds the invalid image of a batch by decoding each one alone."""

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deploykit.serving.protocol.signatures import (
    BYTES,
    EXAMPLES,
    PLACE,
    READY,
    Signature,
    is_ready,
    takes_files,
)
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.ir.tensors import Array

_ASSERTED = re.compile(rf"assertion failed: \[(.*){re.escape(PLACE)}\]")
_LENGTH = 300  # of TensorFlow's error message

Trial = Callable[[Mapping[str, Array], str], str]
"""Runs a node for arrays by alias, and returns the error message, or "" on success."""


def accepted_images(
    meta: MetaGraphDef, signatures: Mapping[str, Signature]
) -> dict[str, dict[str, list[str]]]:
    """Return the nodes of preprocessed images by signature and alias of an image-file input."""
    ready = [node.name for node in meta.graph_def.node if is_ready(node.name)]
    if not ready:
        return {}
    graph = Graph.from_graph_def(meta.graph_def)
    results = {}
    for name, signature in signatures.items():
        used = {
            alias: [producer_name(tensor.name).removesuffix(BYTES) + READY]
            for alias, tensor in signature.inputs.items()
            if takes_files(tensor)
        }
        if EXAMPLES in signature.inputs:
            behind = graph.descendants([producer_name(signature.inputs[EXAMPLES].name)])
            used[EXAMPLES] = [node for node in ready if node in behind]
        if any(used.values()):
            results[name] = used
    return results


def damaged_photo(
    used: Mapping[str, Sequence[str]], feeds: Mapping[str, Array], trial: Trial
) -> str:
    """Return the first invalid image as `alias[index]: reason`; "" if all are valid.

    Indices start at 0. If the batch size is fixed, each image is repeated to fill a batch.
    """
    for alias, nodes in used.items():
        for place in range(len(feeds[alias])):
            alone = {alias: feeds[alias][place : place + 1]}
            if why := next(filter(None, (trial(alone, node) for node in nodes)), ""):
                return f"{alias}[{place}]: {_in_words(why)}"
    return ""


def filled_up(array: Array, sizes: Sequence[int] | None) -> Array:
    """Return a single row repeated to the fixed batch size, if there is one."""
    return np.repeat(array, sizes[0], axis=0) if sizes and sizes[0] > 0 else array


def _in_words(why: str) -> str:
    if text := _ASSERTED.search(why):
        return text[1]
    lines = [line.strip() for line in why.splitlines()]
    known = [line for line in lines if line and line != "Graph execution error:"]
    return f"the photo cannot be decoded: {known[0][:_LENGTH]}" if known else "it cannot be decoded"
