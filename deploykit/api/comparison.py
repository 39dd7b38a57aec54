"""VerifyOptions: inputs and tolerance for comparing two graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import ALLOW_OP, COLUMNS, HEADER, LABELS, PREPROCESS, Flag
from deploykit.verification.chosen_columns import check_columns
from deploykit.verification.samples import DataLike, LabelsLike, PreprocessLike

if TYPE_CHECKING:
    from deploykit.importers.open_model import ModelLike, OpenedModel
    from deploykit.pipelines.rewrite import Compare, Proof
    from deploykit.transforms.ir.graph import Graph
    from deploykit.verification.verify import Verification


READ_BY = ("preprocess", "header", "columns")
"""The names of the options that state how data files are read."""


class ReadsData:
    """The part of an option class that states how data files are read.

    A class declares the fields itself, with their places among its own and their flags.
    """

    preprocess: PreprocessLike | None
    header: HeaderRule
    columns: Mapping[str, str]

    @property
    def read_by(self) -> PreprocessLike | None:
        """The preprocessing of the data, with the header and the columns of tables."""
        from deploykit.data.preprocessing import with_header  # a slow import

        result: PreprocessLike | None = with_header(self.preprocess, self.header, self.columns)
        return result


def reading_options(how: ReadsData) -> dict[str, Any]:
    """Return these options by name, to pass them to another command."""
    return {name: getattr(how, name) for name in READ_BY}


@takes_former_names
@dataclass(frozen=True)
class VerifyOptions(ReadsData):
    """The inputs, the tolerance and the allowed ops of a comparison of two graphs."""

    HEADING: ClassVar = "Data"

    data: Annotated[DataLike | None, Flag(metavar="DATA")] = None
    """Samples on which both graphs are compared: a .npz file of arrays by input name, a folder of
    TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names. With
    labels, the accuracy is shown too [default: reproducible random values]."""
    preprocess: Annotated[PreprocessLike | None, PREPROCESS] = None
    header: Annotated[HeaderRule, HEADER] = "auto"
    columns: Annotated[Mapping[str, str], COLUMNS] = field(default_factory=dict)
    labels: Annotated[LabelsLike | None, LABELS] = None
    shapes: Annotated[Mapping[str, Sequence[int]], Flag("--shape", format="shape")] = field(
        default_factory=dict
    )
    """Shape of an input with unknown dimensions; may be repeated."""
    input_range: Annotated[tuple[float, float], Flag(format="range")] = (-1.0, 1.0)
    """Range of the random values for float inputs if no data is given."""
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = ()
    tolerance: Annotated[float | None, Flag(metavar="T", at_least=0)] = None
    """Largest difference allowed, relative to the largest value [default: in float32 1e-6 * (5 +
    layers), at most 1e-4; in float16 and bfloat16 4 + layers / 2 units in the last place, at most
    16]."""
    allow_unverified: bool = False
    """Continue instead of exiting with 5 if nothing could be compared, for example because random
    values do not fit the model."""

    def refuse_unused(self) -> None:
        """Raise GraphError for options that have no effect because nothing is compared."""
        for name in (field_.name for field_ in fields(self) if field_.name != "allow_ops"):
            value, default = getattr(self, name), getattr(DEFAULT, name)
            if value is not default and (name in _VALUES or value != default):
                raise GraphError("no-effect", option=name, where="with verify=True")

    def opened(self, model: "ModelLike") -> "OpenedModel":
        """Open a model; its metadata states the axes of samples that `preprocess` states."""
        from deploykit.data.samples import with_axes  # a slow import
        from deploykit.importers.open_model import open_model

        return with_axes(open_model(model), self.preprocess)

    def ready(self, reference: "Graph", min_sqnr: float | None = None) -> "Compare":
        """Read the data once, and return a function that compares graphs with a reference.

        FileError, GraphError: the data is invalid or does not match the inputs of the reference.
        RefusedError, here or in that function: a graph acts on files or processes.
        """
        from deploykit.transforms.untrusted.side_effects import refuse_side_effects
        from deploykit.verification.verify import IN_MEMORY, Stored, verify

        if self.data is None and self.preprocess is not None and not self._states_only_axes():
            raise GraphError("option-needs", option="--preprocess", needed="--data")
        if self.labels is not None and self.data is None:
            raise GraphError("option-needs", option="--labels", needed="--data")
        check_columns(self.columns, self.data)
        if self.shapes and self.data is not None:
            raise GraphError("give-one", options=["--data", "--shape"])
        refuse_side_effects(reference, self.allow_ops)
        data = None
        if self.data is not None:
            from deploykit.data.samples import open_samples  # a slow import

            data = open_samples(self.data, reference, self.read_by, labels=self.labels)

        def compared(
            reference: "Graph", result: "Graph", stored: Stored = IN_MEMORY
        ) -> "Verification":
            refuse_side_effects(result, self.allow_ops)
            value = verify(
                reference,
                result,
                data=data,
                input_range=self.input_range,
                shapes=self.shapes,
                tolerance=self.tolerance,
                min_sqnr=min_sqnr,
                stored=stored,
            )
            return value if data is None else replace(value, fed=data.fed)

        return compared

    def _states_only_axes(self) -> bool:
        from deploykit.data.preprocessing import states_only_axes  # a slow import

        return states_only_axes(self.preprocess)

    def proof(
        self,
        model: "OpenedModel",
        min_sqnr: float | None = None,
        *,
        reference: "Graph | None" = None,
        stops_at_doubt: bool = False,
    ) -> "Proof":
        """Return how deploykit proves that a rewritten model matches it. Raises as `ready`."""
        from deploykit.pipelines.rewrite import Proof

        model.refuse_effects(self.allow_ops)  # before pruning can hide such an op
        reference = model.reference if reference is None else reference
        compare = self.ready(reference, min_sqnr)
        return Proof(model, reference, compare, self.allow_unverified, stops_at_doubt)


DEFAULT = VerifyOptions()
_VALUES = ("data", "preprocess", "labels")  # may be arrays, which != compares elementwise
