"""Which feature of data names the group of each sample; of images, their folders may."""

import os
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from deploykit.input.data import Data
from deploykit.transforms.core.errors import unknown_name
from deploykit.verification.groups import GROUP
from deploykit.verification.samples import Dataset

FOLDER = "folder"
"""What images are grouped by where their folders are the groups."""


def group_feature(data: Data, group_by: str | None, inputs: Collection[str]) -> str:
    """Return the feature with the group of each record, or '' where no feature has it.

    Args:
        data: files, and the features of each record.
        group_by: a feature, or `folder` of images; '': `group`, where there is one that is not an
            input; None: no groups.
        inputs: the names of the model's inputs.

    GraphError: the data have no such feature.
    """
    if not group_by:
        is_there = group_by == "" and GROUP in data.features and GROUP not in inputs
        return GROUP if is_there else ""
    if group_by in data.features:
        return group_by
    has_folders = data.kind == "images"
    if group_by == FOLDER and has_folders:
        return ""
    known = sorted({*data.features, *([FOLDER] if has_folders else [])})
    raise unknown_name("array to group by", group_by, known).within(data.path)


def in_folders(samples: Dataset, data: Data, group_by: str | None) -> Dataset:
    """Return samples that are images in groups by their folders; others stay as they are.

    Without `group_by`, folders are groups where there are several and they are not the classes.
    """
    if group_by not in ("", FOLDER) or samples.groups is not None or not samples.files:
        return samples
    folders = [os.path.relpath(os.path.dirname(file), data.path) for file in samples.files]
    are_classes = samples.labels is not None and {*folders} <= {*data.classes}
    if group_by == "" and (are_classes or len({*folders}) < 2):
        return samples
    return replace(samples, groups=np.array(folders, object))
