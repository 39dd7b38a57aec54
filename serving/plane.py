"""The data plane: what is asked of a model, in arrays and names. It knows no protocol.

One call passes: admission (a bound on calls in flight), the model, a check of aliases, a slot (a
bound on calls that compute), the session. Every refusal is a ServingError, with the code and the
words of TensorFlow Serving where that has them.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from serving.batching import Batches, rows_of
from serving.codec import decode
from serving.errors import ServingError
from serving.servable import Servable
from serving.signatures import CLASSES, DEFAULT, EXAMPLES, RESULTS, SCORES, Signature
from transforms.core.tensors import Array

OVERDUE = "the deadline passed before the model ran"


class Models(Protocol):
    """What the plane needs of `serving.models.Models`."""

    def using(
        self, name: str, version: int | None, label: str
    ) -> contextlib.AbstractContextManager[Servable]:
        """Lend a version that is available. ServingError: there is none."""
        ...


@dataclass(frozen=True)
class Target:
    """Whom a call is for: a model, and a version or a label or neither."""

    name: str
    version: int | None = None
    label: str = ""
    signature: str = ""


@dataclass(frozen=True)
class Call:
    """How long a caller waits, and whether it still does."""

    deadline: float | None = None
    """In the seconds of `time.monotonic`."""
    cancelled: Callable[[], bool] = lambda: False

    def seconds_left(self) -> float | None:
        """Return the time that is left, in seconds. ServingError: nobody waits any more."""
        if self.cancelled():
            raise ServingError("CANCELLED", "the caller cancelled the call")
        if self.deadline is None:
            return None
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ServingError("DEADLINE_EXCEEDED", OVERDUE)
        return left


@dataclass(frozen=True)
class Answer:
    """What a model answered, and which version of it did."""

    name: str
    version: int
    signature: str
    outputs: Mapping[str, Array] = field(default_factory=dict)


Class = tuple[str, float]


class Plane:
    """All that can be asked of models."""

    def __init__(
        self,
        models: Models,
        in_flight: int,
        slots: int,
        observe: Callable[[str, str, str, float, float], None] = lambda *_: None,
        batches: Batches | None = None,
    ) -> None:
        """Bound the calls that are let in, and those that compute at once.

        `observe` is told of each call: model, method, code, seconds in all, seconds in the session.
        `batches` lets calls of one signature share a batch.
        """
        self.models = models
        self.in_flight = in_flight
        self._admission = threading.BoundedSemaphore(in_flight)
        self._slots = threading.BoundedSemaphore(slots)
        self._observe = observe
        self._batches = batches

    def predict(
        self, target: Target, inputs: Mapping[str, Array], outputs: Sequence[str], call: Call
    ) -> Answer:
        """Return the outputs that are asked for, or all."""
        with self._called(target, "Predict", call) as (servable, timer):
            name = target.signature or DEFAULT
            if name not in servable.signatures:
                raise ServingError(
                    "FAILED_PRECONDITION", f'Serving signature key "{name}" not found.'
                )
            signature = servable.signatures[name]
            feeds = _with_defaults(signature, inputs)
            wanted = _wanted(signature, outputs)
            found = self._run(servable, name, feeds, wanted, call, timer)
            return Answer(servable.name, servable.version, name, found)

    def classify(
        self, target: Target, examples: Sequence[bytes], call: Call
    ) -> tuple[Answer, list[list[Class]]]:
        """Return the classes of each serialized tf.Example, with their scores."""
        with self._called(target, "Classify", call) as (servable, timer):
            _check_some(examples)
            name = _named(servable, target, "No signature was found with the name: ")
            return self._classified(servable, name, examples, call, timer)

    def regress(
        self, target: Target, examples: Sequence[bytes], call: Call
    ) -> tuple[Answer, list[float]]:
        """Return a number for each serialized tf.Example."""
        with self._called(target, "Regress", call) as (servable, timer):
            _check_some(examples)
            name = _named(servable, target, "No signature was found with the name: ")
            return self._regressed(servable, name, examples, call, timer)

    def multi_inference(
        self, tasks: Sequence[tuple[Target, str]], examples: Sequence[bytes], call: Call
    ) -> list[tuple[Answer, list[list[Class]] | list[float]]]:
        """Return what several signatures of one model say of the same examples, by method name."""
        from serving.signatures import CLASSIFY, REGRESS

        _check_tasks(tasks)
        with self._called(tasks[0][0], "MultiInference", call) as (servable, timer):
            _check_some(examples)
            found: list[tuple[Answer, list[list[Class]] | list[float]]] = []
            for target, method in tasks:
                words = "Requested signature not found in model graph: "
                name = _named(servable, target, words)
                if method == CLASSIFY:
                    found.append(self._classified(servable, name, examples, call, timer))
                elif method == REGRESS:
                    found.append(self._regressed(servable, name, examples, call, timer))
                else:
                    raise ServingError(
                        "UNIMPLEMENTED", f"Unsupported signature method_name: {method}"
                    )
            return found

    def signatures(self, target: Target) -> tuple[Answer, dict[str, Signature]]:
        """Return the signatures of a model."""
        with self.models.using(target.name, target.version, target.label) as servable:
            return Answer(servable.name, servable.version, ""), dict(servable.signatures)

    def _classified(
        self, servable: Servable, name: str, examples: Sequence[bytes], call: Call, timer: "_Timer"
    ) -> tuple[Answer, list[list[Class]]]:
        signature = servable.signatures[name]
        wanted = [alias for alias in (CLASSES, SCORES) if alias in signature.outputs]
        if EXAMPLES not in signature.inputs or not wanted:
            raise _unlike(signature, "classification", EXAMPLES, f"{CLASSES} or {SCORES}")
        found = self._run(servable, name, {EXAMPLES: _texts(examples)}, wanted, call, timer)
        for alias, array in found.items():
            if array.ndim != 2 or len(array) != len(examples):
                raise ServingError(
                    "INVALID_ARGUMENT",
                    f"Expected Tensor shape: [{len(examples)} ?] but got {list(array.shape)} "
                    f"for output {alias}",
                )
        count = next(iter(found.values())).shape[1]
        labels = found.get(CLASSES, np.full((len(examples), count), b"", object))
        scores = found.get(SCORES, np.zeros((len(examples), count), np.float32))
        answer = Answer(servable.name, servable.version, name)
        return answer, [
            [(_text(label), float(score)) for label, score in zip(*each, strict=True)]
            for each in zip(labels.tolist(), scores.tolist(), strict=True)
        ]

    def _regressed(
        self, servable: Servable, name: str, examples: Sequence[bytes], call: Call, timer: "_Timer"
    ) -> tuple[Answer, list[float]]:
        signature = servable.signatures[name]
        if EXAMPLES not in signature.inputs or RESULTS not in signature.outputs:
            raise _unlike(signature, "regression", EXAMPLES, RESULTS)
        feeds = {EXAMPLES: _texts(examples)}
        found = self._run(servable, name, feeds, [RESULTS], call, timer)[RESULTS]
        if found.size != len(examples) or found.ndim not in (1, 2):
            raise ServingError(
                "INVALID_ARGUMENT",
                f"Expected output Tensor shape to be either [{len(examples)}] or "
                f"[{len(examples)} 1] but got {list(found.shape)}",
            )
        answer = Answer(servable.name, servable.version, name)
        return answer, [float(value) for value in found.ravel().tolist()]

    @contextlib.contextmanager
    def _called(
        self, target: Target, method: str, call: Call
    ) -> Iterator[tuple[Servable, "_Timer"]]:
        """Let a call in, lend it the model, and tell what became of it."""
        timer, code = _Timer(), "OK"
        try:
            if not self._admission.acquire(blocking=False):
                raise ServingError(
                    "RESOURCE_EXHAUSTED",
                    f"{self.in_flight} calls are in flight already; try again later",
                )
            try:
                with self.models.using(target.name, target.version, target.label) as servable:
                    yield servable, timer
            finally:
                self._admission.release()
        except ServingError as error:
            code = error.code
            raise
        except BaseException:
            code = "INTERNAL"
            raise
        finally:
            self._observe(target.name, method, code, time.monotonic() - timer.start, timer.run)

    def _run(
        self,
        servable: Servable,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        call: Call,
        timer: "_Timer",
    ) -> dict[str, Array]:
        """Run a signature for a call, alone or together with others."""
        start = time.monotonic()

        def compute(given: Mapping[str, Array], left: float | None) -> dict[str, Array]:
            batch = Call(None if left is None else time.monotonic() + left)
            return self._computed(servable, signature, given, outputs, batch)

        try:
            rows = self._batches and rows_of(servable.signatures[signature], feeds)
            if self._batches is None or rows is None:
                return self._computed(servable, signature, feeds, outputs, call)
            return self._batches.run(
                servable, signature, feeds, outputs, rows, call.seconds_left, compute
            )
        finally:
            timer.run += time.monotonic() - start

    def _computed(
        self,
        servable: Servable,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        call: Call,
    ) -> dict[str, Array]:
        """Wait for a slot, no longer than the caller does, and run the session."""
        if not self._slots.acquire(timeout=call.seconds_left()):
            raise ServingError("DEADLINE_EXCEEDED", OVERDUE)
        try:
            return servable.run(signature, feeds, outputs, call.seconds_left())
        finally:
            self._slots.release()


@dataclass
class _Timer:
    """When a call began, and how long it was in the session, in seconds."""

    start: float = field(default_factory=time.monotonic)
    run: float = 0.0


def _with_defaults(signature: Signature, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return all inputs of a signature. ServingError: one is missing or not known."""
    defaults = signature.proto.defaults
    sent = {alias for alias in inputs if alias not in signature.inputs}
    missing = {a for a in signature.inputs if a not in inputs and a not in defaults}
    if len(inputs) != len(signature.inputs) and (sent or missing) and not defaults:
        raise ServingError(
            "INVALID_ARGUMENT",
            f"input size does not match signature: {len(inputs)}!={len(signature.inputs)} "
            f"len({_set(inputs)}) != len({_set(signature.inputs)}). "
            f"Sent extra: {_set(sent)}. Missing but required: {_set(missing)}.",
        )
    for alias in sorted(missing):
        raise ServingError(
            "INVALID_ARGUMENT",
            f"Signature input alias: {alias}(feed name: {signature.inputs[alias].name}) not found "
            f"in request and no default value provided. Inputs expected to be in the set "
            f"{_set(signature.inputs)}.",
        )
    if sent:
        raise ServingError("INVALID_ARGUMENT", f"Sent extra: {_set(sent)}.")
    given = {a: decode(defaults[a], a) for a in signature.inputs if a not in inputs}
    return {**inputs, **given}


def _wanted(signature: Signature, outputs: Sequence[str]) -> list[str]:
    """Return the aliases that are fetched. ServingError: one is not known, or twice there."""
    for number, alias in enumerate(outputs):
        if alias not in signature.outputs:
            raise ServingError(
                "INVALID_ARGUMENT",
                f"output tensor alias not found in signature: {alias} Outputs expected to be in "
                f"the set {_set(signature.outputs)}.",
            )
        if alias in outputs[:number]:
            raise ServingError("INVALID_ARGUMENT", f"duplicate output tensor alias: {alias}")
    return list(outputs or signature.outputs)


def _named(servable: Servable, target: Target, words: str) -> str:
    name = target.signature or DEFAULT
    if name not in servable.signatures:
        raise ServingError("INVALID_ARGUMENT", f"{words}{name}")
    return name


def _check_some(examples: Sequence[bytes]) -> None:
    if not examples:
        raise ServingError("INVALID_ARGUMENT", "Input is empty.")


def _check_tasks(tasks: Sequence[tuple[Target, Any]]) -> None:
    """Raise ServingError for tasks that are not about one model, or twice about a signature."""
    seen: set[str] = set()
    if not tasks:
        raise ServingError("INVALID_ARGUMENT", "Inference request must have at least one task.")
    for target, _ in tasks:
        if not target.name:
            raise ServingError("INVALID_ARGUMENT", "Found ModelSpec with an empty model name.")
        if target.name != tasks[0][0].name:
            raise ServingError(
                "INVALID_ARGUMENT",
                "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
            )
        name = target.signature or DEFAULT
        if name in seen:
            raise ServingError("INVALID_ARGUMENT", f"Duplicate evaluation of signature: {name}")
        seen.add(name)


def _unlike(signature: Signature, kind: str, inputs: str, outputs: str) -> ServingError:
    return ServingError(
        "INVALID_ARGUMENT",
        f"the signature is none for {kind}: it takes {_set(signature.inputs)} and gives "
        f"{_set(signature.outputs)}, expected {inputs} and {outputs}",
    )


def _texts(examples: Sequence[bytes]) -> Array:
    found = np.empty(len(examples), object)
    found[:] = examples
    return found


def _text(label: bytes) -> str:
    return label.decode(errors="replace") if isinstance(label, bytes) else str(label)


def _set(aliases: Mapping[str, Any] | set[str]) -> str:
    """Return aliases as TensorFlow Serving writes a set."""
    return f"{{{','.join(sorted(aliases))}}}"
