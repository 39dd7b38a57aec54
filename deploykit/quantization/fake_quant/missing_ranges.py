"""Ranges that a partly annotated model does not state, measured on samples."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from deploykit.quantization.calibration import calibrate
from deploykit.rewriting.fake_quant_graph import FakeQuantGraph
from deploykit.text.templates import listed
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.fake_quant.grids import VARS
from deploykit.transforms.core.int8.fake_quant.placement import place_fake_quants
from deploykit.transforms.core.int8.ranges import Ranges
from deploykit.transforms.core.node import Node, normal, producer_name
from deploykit.transforms.core.tensors import Array

_NAMED = 3  # tensors in a note


def with_missing_ranges(
    stated: FakeQuantGraph, feeds: Sequence[Mapping[str, Array]]
) -> tuple[FakeQuantGraph, list[str]]:
    """Return the graph with a fake-quant where a layer with stated weights has none, and notes.

    Layers whose weights have no fake-quant are kept in float32. GraphError: as in `calibrate`.
    """
    read, made = stated.missing()
    if not read and not made:
        return stated, []
    ranges = calibrate(stated.graph, feeds).ranges
    work, added = stated.graph.copy(), list[str]()
    for tensor, readers in read.items():
        if tensor not in made and _add(work, tensor, ranges, readers):
            added.append(tensor)
    place_fake_quants(work)
    for tensor in replace(stated, graph=work).missing()[1]:
        readers = [node.name for node in work.readers(tensor)]
        if _add(work, tensor, ranges, readers):
            added.append(tensor)
    note = (
        f"the model states no range of {len(added)} tensors, so they are calibrated: "
        f"{listed(added, _NAMED)}"
    )
    return replace(stated, graph=work), [note] if added else []


def _add(graph: Graph, tensor: str, ranges: Ranges, readers: Collection[str]) -> bool:
    """Put a fake-quant between a tensor and nodes that read it, if its range is known."""
    found = ranges.tensors.get(normal(tensor))
    if found is None or not found.min < found.max:
        return False
    maker = graph.producer(tensor)
    name = graph.unique_name(f"{producer_name(tensor)}/calibrated")
    values = {"min": min(found.min, 0.0), "max": max(found.max, 0.0)}
    free = replace(maker, device="")
    ends = [
        graph.constant_beside(free, np.array(value, np.float32), f"{name}/{end}").name
        for end, value in values.items()
    ]
    node = Node(name, VARS, (tensor, *ends), device=maker.device)
    graph.add(node.with_attrs(num_bits=8, narrow_range=False))
    for reader in map(graph.__getitem__, readers):
        inputs = [name if each == tensor else each for each in reader.data_inputs]
        graph.replace(reader, reader.with_data_inputs(*inputs))
    return True
