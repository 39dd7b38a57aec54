"""The data plane: runs requests, given as arrays and names, on models. It knows no protocol.

A request passes admission (a limit of concurrent requests), the model, a check of aliases, and the
session. It runs in one of a few threads, unless it is very short. Every error is a ServingError,
with TensorFlow Serving's code and message where it defines one.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from deploykit.serving.execution.batching import Batches
from deploykit.serving.execution.classify_regress import Class, check_some, classes_of, values_of
from deploykit.serving.execution.engines.engine import ALL, HERE
from deploykit.serving.execution.open_inference import (
    check_classes,
    check_inputs,
    check_outputs,
    chosen_signature,
    with_classes,
)
from deploykit.serving.execution.request_inputs import requested, rows_of, with_defaults
from deploykit.serving.execution.servable import Servable
from deploykit.serving.execution.slots import Slots
from deploykit.serving.protocol.codec import INPUT_ALIAS
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.protos import ModelSpec
from deploykit.serving.protocol.signatures import CLASSIFY, DEFAULT, REGRESS, Signature
from deploykit.serving.protocol.versions import check_name, check_names
from deploykit.transforms.ir.tensors import Array

_INT64, _LONGEST_NUMBER = 1 << 63, 40
QUICK_SECONDS = 10.0
"""For this time after a short request no request is rejected before its model is known."""


class UsableModels(Protocol):
    """The part of `deploykit.serving.lifecycle.models.Models` that the data plane uses."""

    def using(
        self, name: str, version: int | None, label: str
    ) -> contextlib.AbstractContextManager[Servable]:
        """Use an available version within the block. ServingError: there is none."""
        ...


@dataclass(frozen=True)
class Target:
    """What a request addresses: a model, optionally a version or a label, and a signature."""

    name: str
    version: int | None = None
    label: str = ""
    signature: str = ""

    def __post_init__(self) -> None:
        """Raise ServingError for names that are too long, before they are used."""
        check_name("the name of the model", self.name)
        check_name("the label of the version", self.label)
        check_name("the name of the signature", self.signature)

    @classmethod
    def named(cls, name: str, version: str, signature: str = "") -> "Target":
        """Return a target. `version` is a number, a label, or empty for the latest version.

        ServingError: the model has no name, or the number has more than 63 bits.
        """
        if not name:
            raise refused("request-without-model")
        if not (version.isascii() and version.isdigit()):
            return cls(name, None, version, signature)
        if len(version) > _LONGEST_NUMBER or int(version) >= _INT64:
            raise ServingError("NOT_FOUND", "version-too-large", version=version[:40])
        return cls(name, int(version), "", signature)


@dataclass(frozen=True)
class Requester:
    """The deadline of a client, and whether it still waits."""

    deadline: float | None = None
    """A time of `time.monotonic`, in seconds."""
    cancelled: Callable[[], bool] = lambda: False

    def seconds_left(self) -> float | None:
        """Return the seconds until the deadline. ServingError: it has passed or was cancelled."""
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:  # gRPC also marks such a request as cancelled
            raise ServingError("DEADLINE_EXCEEDED", "deadline-before-run")
        if self.cancelled():
            raise ServingError("CANCELLED", "call-cancelled")
        return left


@dataclass(frozen=True)
class Answer:
    """The response of a model, in the form of the request's method, with the model version."""

    name: str
    version: int
    signature: str
    outputs: Mapping[str, Array] = field(default_factory=dict)
    classes: Sequence[Sequence[Class]] = ()
    values: Sequence[float] = ()

    @property
    def spec(self) -> ModelSpec:
        """The model, version and signature that produced it."""
        spec = ModelSpec(name=self.name, signature_name=self.signature)
        spec.version.value = self.version
        return spec


class Plane:
    """Runs all requests on the models."""

    def __init__(
        self,
        models: UsableModels,
        in_flight: int,
        slots: int,
        observe: Callable[[str, str, str, float, float], None] = lambda *_: None,
        batches: Batches | None = None,
        longest_wait: float = float("inf"),
    ) -> None:
        """Limit the admitted requests, and those that run concurrently.

        Without slots, each request runs in its own thread, and its deadline does not interrupt it.
        `longest_wait`: reject requests that are expected to wait longer for a slot, in seconds.

        `observe` is called per request: model, method, code, total seconds, seconds in the session
        (for a batch, in the request that ran it).
        `batches` lets requests for one signature share a batch.
        """
        self.models = models
        self.in_flight = in_flight
        self._admission = threading.BoundedSemaphore(in_flight)
        self._slots = Slots(slots, longest_wait) if slots else None
        self._last_quick = float("-inf")  # when a request last needed no slot
        self._observe = observe
        self._batches = batches

    def refuse_if_full(self) -> None:
        """Reject a request before its model is known.

        ServingError: all recent requests needed a slot, and the expected wait is too long.
        """
        slots = self._slots
        if slots is None or not slots.is_full:
            return
        if time.monotonic() - self._last_quick > QUICK_SECONDS:
            raise slots.full()

    def predict(
        self, target: Target, inputs: Mapping[str, Array], outputs: Sequence[str], caller: Requester
    ) -> Answer:
        """Return the requested outputs, or all."""
        check_names(INPUT_ALIAS, inputs)
        check_names("an alias of output_filter", outputs)
        with self._called(target, "Predict", caller) as lease:
            name = target.signature or DEFAULT
            if name not in lease.servable.signatures:
                raise ServingError("FAILED_PRECONDITION", "signature-key-missing", name=name)
            return self._answered(lease, target, name, inputs, outputs)

    def infer(
        self,
        target: Target,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        caller: Requester,
        classes: Mapping[str, int],
    ) -> Answer:
        """Return outputs as `predict` does, by the rules of the Open Inference Protocol.

        Without a signature, the default one or else the only one is used. Outputs in `classes` are
        replaced by this number of best classes.
        """
        with self._called(target, "ModelInfer", caller) as lease:
            name = chosen_signature(target.name, target.signature, lease.servable.signatures)
            signature = lease.servable.signatures[name]
            check_inputs(signature, inputs)
            check_outputs(signature, outputs)
            check_classes(signature, classes)
            answer = self._answered(lease, target, name, inputs, outputs)
            if not classes:
                return answer
            labels = lease.servable.labels
            return replace(answer, outputs=with_classes(signature, answer.outputs, classes, labels))

    def _answered(
        self,
        lease: "_Lease",
        target: Target,
        name: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
    ) -> Answer:
        signature = lease.servable.signatures[name]
        feeds = with_defaults(signature, inputs)
        result = self._run(lease, name, feeds, requested(signature, outputs))
        return Answer(target.name, lease.servable.version, name, outputs=result)

    def classify(self, target: Target, examples: Sequence[bytes], caller: Requester) -> Answer:
        """Return the (label, score) pairs of each serialized tf.Example."""
        with self._called(target, "Classify", caller) as lease:
            check_some(examples)
            return self._inferred(lease, _named(lease, target), CLASSIFY, examples)

    def regress(self, target: Target, examples: Sequence[bytes], caller: Requester) -> Answer:
        """Return one number per serialized tf.Example."""
        with self._called(target, "Regress", caller) as lease:
            check_some(examples)
            return self._inferred(lease, _named(lease, target), REGRESS, examples)

    def multi_inference(
        self, tasks: Sequence[tuple[Target, str]], examples: Sequence[bytes], caller: Requester
    ) -> list[Answer]:
        """Return the results of several signatures of one model for the same examples."""
        _check_tasks(tasks)
        with self._called(tasks[0][0], "MultiInference", caller) as lease:
            check_some(examples)
            return [
                self._inferred(lease, _named(lease, target, of_several=True), method, examples)
                for target, method in tasks
            ]

    def signatures(self, target: Target) -> tuple[Answer, dict[str, Signature]]:
        """Return the signatures of a model."""
        with self.models.using(target.name, target.version, target.label) as servable:
            return Answer(target.name, servable.version, ""), dict(servable.signatures)

    def _inferred(
        self, lease: "_Lease", name: str, method: str, examples: Sequence[bytes]
    ) -> Answer:
        signature, servable = lease.servable.signatures[name], lease.servable

        def run(feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
            return self._run(lease, name, feeds, outputs)

        answer = Answer(servable.name, servable.version, name)
        if method == CLASSIFY:
            return replace(answer, classes=classes_of(signature, examples, run))
        if method == REGRESS:
            return replace(answer, values=values_of(signature, examples, run))
        raise ServingError("UNIMPLEMENTED", "signature-method-unsupported", method=method)

    @contextlib.contextmanager
    def _called(self, target: Target, method: str, caller: Requester) -> Iterator["_Lease"]:
        """Admit a request, provide its model, and report the result to `observe`."""
        start, seconds, code = time.monotonic(), 0.0, "OK"
        try:
            if not self._admission.acquire(blocking=False):
                raise ServingError("RESOURCE_EXHAUSTED", "too-many-calls", in_flight=self.in_flight)
            try:
                with self.models.using(target.name, target.version, target.label) as servable:
                    lease = _Lease(servable, caller)
                    try:
                        yield lease
                    finally:
                        seconds = lease.seconds
            finally:
                self._admission.release()
        except ServingError as error:
            code = error.status
            raise
        except BaseException:
            code = "INTERNAL"
            raise
        finally:
            self._observe(target.name, method, code, time.monotonic() - start, seconds)

    def _run(
        self, lease: "_Lease", signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]
    ) -> dict[str, Array]:
        """Run a signature for a request, alone or in a batch."""
        servable, caller = lease.servable, lease.caller

        def compute(given: Mapping[str, Array], left: float | None) -> dict[str, Array]:
            batch = Requester(None if left is None else time.monotonic() + left)
            return self._computed(lease, signature, given, outputs, batch)

        if self._batches is not None:
            rows = rows_of(servable.signatures[signature], feeds)
            if rows is not None:
                slots = self._slots
                if slots and slots.is_full and not servable.is_quick(signature, feeds):
                    raise slots.full()
                lease.accepted = True
                return self._batches.run(
                    servable, signature, feeds, outputs, rows, caller.seconds_left, compute
                )
        return self._computed(lease, signature, feeds, outputs, caller)

    def _computed(
        self,
        lease: "_Lease",
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        caller: Requester,
    ) -> dict[str, Array]:
        """Run the session in the thread of a slot, waiting at most until the deadline."""
        servable, slots = lease.servable, self._slots

        def run(given: Mapping[str, Array], spread: bool = False) -> dict[str, Array]:
            slot = ALL if spread else HERE if slots is None else slots.here()
            return servable.run(signature, given, outputs, caller.seconds_left(), slot)

        def whole() -> dict[str, Array]:
            start = time.monotonic()
            try:
                value = run(feeds)
                for item in (servable.parts, servable.times):
                    item.note(signature, feeds, time.monotonic() - start)
                return value
            finally:
                lease.seconds += time.monotonic() - start

        if slots is None or servable.is_quick(signature, feeds):
            self._last_quick = time.monotonic()
            return whole()
        start = time.monotonic()
        try:
            result = servable.parts.run(signature, feeds, run, slots)
        finally:
            lease.seconds += time.monotonic() - start
        if result is None:
            expected = servable.times.expected(signature, feeds)
            result = slots.run(whole, caller.seconds_left(), expected, lease.accepted)
        lease.accepted = True  # further runs of this request are not rejected any more
        return result


@dataclass
class _Lease:
    """A version used by a request, and its seconds in the session."""

    servable: Servable
    caller: Requester
    seconds: float = 0.0
    accepted: bool = False
    """Whether it waits for a slot regardless of the expected time."""


def _named(lease: _Lease, target: Target, of_several: bool = False) -> str:
    """Return the name of a signature. ServingError: it does not exist."""
    name = target.signature or DEFAULT
    if name in lease.servable.signatures:
        return name
    if of_several:
        raise refused("signature-not-in-graph", name=name)
    raise refused("signature-not-found", name=name)


def _check_tasks(tasks: Sequence[tuple[Target, str]]) -> None:
    """Raise ServingError if tasks address several models, or a signature twice."""
    seen: set[str] = set()
    if not tasks:
        raise refused("multi-inference-empty")
    for target, method in tasks:
        check_name("a method_name", method)
        if not target.name:
            raise refused("model-spec-empty-name")
        if target.name != tasks[0][0].name:
            raise refused("multi-inference-models-differ")
        name = target.signature or DEFAULT
        if name in seen:
            raise refused("multi-inference-duplicate", name=name)
        seen.add(name)
