"""What stands for everything that is given to `ship`, in the keys of its stages."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from deploykit.freezing.interface import ModelSource
from deploykit.freezing.open_model import path_of
from deploykit.input.data import is_arrays
from deploykit.shipping.kept import digest_of
from deploykit.shipping.ship_options import ShipOptions
from deploykit.storage.arrays import load_forms
from deploykit.transforms.core.errors import Error
from deploykit.verification.samples import Dataset


def inputs_of(source: ModelSource, how: ShipOptions) -> dict[str, Any]:
    """Return what stands for the model and each option.

    Also for `evaluation_form`, the names, types and shapes of the evaluation data, which is all
    that the speed of a model depends on.
    """
    found = {each.name: digest_of(getattr(how, each.name)) for each in fields(how)}
    stated = asdict(replace(source, model=None))
    del stated["model"]
    paths = path_of(source)
    found["model"] = digest_of(paths[0]) if paths else source.model.sha256
    found["evaluation_form"] = _form(how.evaluation)
    return found | {"source": {**stated, "graph": digest_of(stated["graph"])}}


def _form(data: Any) -> Any:
    """Return names, types and shapes of samples in arrays; of files, that they are files."""
    if data is None:
        return None
    forms: Mapping[str, tuple[Any, tuple[int, ...]]] = {}
    if isinstance(data, Dataset):
        arrays = {name: np.asarray(each) for name, each in data.arrays.items()}
        forms = {name: (each.dtype, each.shape) for name, each in arrays.items()}
    elif is_arrays(data):
        try:
            forms = load_forms(data)
        except Error:
            return "unreadable"
    return {name: [str(dtype), *shape[1:]] for name, (dtype, shape) in forms.items()}
