"""How two graphs are compared: on which inputs, and against which bar."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from deploykit.transforms.core.errors import GraphError

if TYPE_CHECKING:
    from deploykit.freezing.open_model import OpenedModel
    from deploykit.rewriting.proof import Compare, Proof
    from deploykit.transforms.core.graph import Graph
    from deploykit.verification.verify import Verification


@dataclass(frozen=True)
class Comparison:
    """The data, or the range of made-up inputs; ops that may act on files; and the bar."""

    data: Any = None
    """Samples to run both graphs on: whatever `open_samples` takes; with labels, accuracy is taken
    too; default: made up, seed 0."""
    preprocess: Any = None
    """What becomes of the features of files: a JSON file, what it holds, or the range of photos,
    such as `0..1`."""
    labels: Any = None
    """Names of the model's classes in the order of its scores, by which data that name classes,
    such as folders of photos, are understood: a text file with one a line, or the names; default:
    what is kept beside the model."""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Sizes of made-up inputs that the model leaves open, by name; the first one is the batch."""
    input_range: tuple[float, float] = (-1.0, 1.0)
    """Of made-up floats."""
    allowed_ops: Sequence[str] = ()
    """Ops that are run although they act on files or processes."""
    tolerance: float | None = None
    """The largest error, relative to the largest value; default, in float32: 1e-6 * (5 + layers),
    at most 1e-4; as many roundings in float64; in float16 and bfloat16 4 + layers / 2 roundings of
    the type (2^-10, 2^-7), at most 16."""
    allow_unverified: bool = False
    """Whether it counts as right where nothing could be compared."""

    def refuse_unused(self) -> None:
        """Raise GraphError for what has no effect where nothing is compared."""
        for name in (each.name for each in fields(self) if each.name != "allowed_ops"):
            value, default = getattr(self, name), getattr(DEFAULT, name)
            if value is not default and (name in _VALUES or value != default):
                raise GraphError("no-effect", option=name, where="with verify=True")

    def ready(self, reference: "Graph", min_sqnr: float | None = None) -> "Compare":
        """Read the data, once, and return what compares a graph with this reference, or its like.

        FileError, GraphError: the data are damaged, or do not fit the inputs of the reference.
        RefusedError, now or then: a graph acts on files or processes.
        """
        from deploykit.transforms.core.checks.side_effects import refuse_side_effects
        from deploykit.verification.verify import IN_MEMORY, Stored, verify

        if self.preprocess is not None and self.data is None:
            raise GraphError("option-needs", option="--preprocess", needed="--data")
        if self.labels is not None and self.data is None:
            raise GraphError("option-needs", option="--labels", needed="--data")
        if self.shapes and self.data is not None:
            raise GraphError("give-one", options=["--data", "--shape"])
        refuse_side_effects(reference, self.allowed_ops)
        data = None
        if self.data is not None:
            from deploykit.input.samples import open_samples  # it brings much along

            data = open_samples(self.data, reference, self.preprocess, labels=self.labels)

        def compared(
            reference: "Graph", result: "Graph", stored: Stored = IN_MEMORY
        ) -> "Verification":
            refuse_side_effects(result, self.allowed_ops)
            found = verify(
                reference,
                result,
                data=data,
                input_range=self.input_range,
                shapes=self.shapes,
                tolerance=self.tolerance,
                min_sqnr=min_sqnr,
                stored=stored,
            )
            return found if data is None else replace(found, fed=data.fed)

        return compared

    def proof(
        self,
        model: "OpenedModel",
        min_sqnr: float | None = None,
        *,
        reference: "Graph | None" = None,
        stops_at_doubt: bool = False,
    ) -> "Proof":
        """Return how what is made of a model is compared with it; raises what `ready` raises."""
        from deploykit.rewriting.proof import Proof

        model.refuse_effects(self.allowed_ops)  # before anything of it is dropped
        reference = model.reference if reference is None else reference
        compare = self.ready(reference, min_sqnr)
        return Proof(model, reference, compare, self.allow_unverified, stops_at_doubt)


DEFAULT = Comparison()
_VALUES = ("data", "preprocess", "labels")  # which may be arrays, that cannot be compared with None
