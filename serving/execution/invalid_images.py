"""The invalid image of a batch, found by decoding each one alone."""

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
_LENGTH = 300  # of TensorFlow's own words

Trial = Callable[[Mapping[str, Array], str], str]
"""Computes a node for arrays by alias, and returns why it could not; nothing: it could."""


def photos_taken(
    meta: MetaGraphDef, signatures: Mapping[str, Signature]
) -> dict[str, dict[str, list[str]]]:
    """Return for each signature that takes photos as files: by alias, what becomes of them."""
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
    """Return the place of the first photo that is refused, and why; nothing: all are sound.

    Places are counted from 0. As many are tried at once as a batch has to have, all alike.
    """
    for alias, nodes in used.items():
        for place in range(len(feeds[alias])):
            alone = {alias: feeds[alias][place : place + 1]}
            if why := next(filter(None, (trial(alone, node) for node in nodes)), ""):
                return f"{alias}[{place}]: {_in_words(why)}"
    return ""


def filled_up(array: Array, sizes: Sequence[int] | None) -> Array:
    """Return one row as often as a batch has to have it."""
    return np.repeat(array, sizes[0], axis=0) if sizes and sizes[0] > 0 else array


def _in_words(why: str) -> str:
    if said := _ASSERTED.search(why):
        return said[1]
    lines = [line.strip() for line in why.splitlines()]
    known = [line for line in lines if line and line != "Graph execution error:"]
    return f"the photo cannot be decoded: {known[0][:_LENGTH]}" if known else "it cannot be decoded"
