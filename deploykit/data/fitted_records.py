"""Gives the features of TFRecords the sizes and types that the inputs of a model take."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from deploykit.data.data import Data
from deploykit.data.preprocessing import Steps
from deploykit.records.examples import Feature
from deploykit.records.plain_records import fitted, plain_records
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.synthetic.sample_inputs import names_of_inputs, per_sample

_DEFAULT = Steps()


def fitting(data: Data, graph: Graph | None, steps: Mapping[str, Steps]) -> Data:
    """Return TFRecords with features as a graph takes them, by the declared `steps` of inputs.

    An index states the features, and only its open sizes become those of the inputs.
    """
    if data.kind != "records" or graph is None:
        return data
    results, inputs = dict(data.features), names_of_inputs(graph)
    usual = dict(data.usual or {})
    for tensor, (type_, size) in per_sample(graph).items():
        names = inputs[tensor]
        declared = [steps[name] for name in names if name in steps]
        shape = _taken(size, declared[0] if declared else _DEFAULT)
        wanted = [each.feature for each in declared if each.feature] or names
        if data.usual is not None and not data.records:  # they have any features
            row = tuple(None if size < 0 else size for size in (shape or ())[1:])
            results[wanted[0]] = Feature(type_ or "float32", row)
            continue
        known = [name for name in wanted if name in results]
        if not known and len(inputs) == 1 and wanted is names:
            known = data.unlabelled if len(data.unlabelled) == 1 else data.only_of_type(type_)
        if not known and data.usual is not None:
            later = plain_records(data.path, list(map(Path, data.files)), wanted)
            known = [name for name in wanted if name in later.features]
            results |= {name: later.features[name] for name in known}
            usual |= {name: later.usual[name] for name in known}
        for name in known[:1]:
            feature = results[name]
            is_plain = name in usual
            results[name] = (
                fitted(feature, usual[name], type_, shape) if is_plain else feature.sized(shape)
            )
    return replace(data, features=results, usual=None if data.usual is None else usual)


def _taken(shape: tuple[int, ...] | None, steps: Steps) -> tuple[int, ...] | None:
    """Return the shape of a feature before the steps, with the samples in front; None: unknown."""
    if shape is None or steps.split is not None:
        return None
    return shape if steps.length is None else (*shape[:1], -1)  # lists of any length are truncated
