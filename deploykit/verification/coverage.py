"""Coverage of a comparison: NaN, constant, empty or implausible outputs verify little."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

import numpy as np

from deploykit.transforms.common.documents import Written, written
from deploykit.transforms.ir.control_flow import conditional_depths
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name, split
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.ir.ops import op_defs, output_types
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.differences import Difference
from deploykit.verification.confidence import paired_wilson, wilson
from deploykit.verification.tolerance import Pairing, choices

FEWEST = 8  # minimum number of samples for a conclusion
RARE = 0.05  # significance level


@dataclass(frozen=True)
class Answers:
    """The predictions of a model as class numbers."""

    numbers: Array
    classes: int
    are_sure: bool
    """Whether they certainly are classes: a Softmax or a Sigmoid computes them."""


def answers_of(output: Array, maker: str = "") -> Answers | None:
    """Return the predictions in an output [samples, classes], or None if it has no classes.

    `maker` is the op that computes it. A single Sigmoid column is the probability of class 1.
    """
    if output.ndim != 2 or output.dtype.kind != "f" or not output.shape[1]:
        return None
    if output.shape[1] == 1:
        is_sure = maker == "Sigmoid"
        return Answers((output[:, 0] > 0.5).astype(np.int64), 2, True) if is_sure else None
    return Answers(output.argmax(1), output.shape[1], maker == "Softmax")


def doubt(
    answers: Array,
    classes: int,
    labels: Array | None = None,
    *,
    source: str = "",
    is_named: bool = False,
) -> str:
    """Return in one sentence why predictions cannot be right, or an empty string.

    First case: all predictions are one class. If the class has the frequency p, all n predictions
    are this class with probability p^n, which should not be below 0.05. Without labels, p is
    assumed halfway between 1 / classes and 1, so 11 predictions of 2 classes are enough.

    Second case: the accuracy does not exceed chance. Shuffled predictions have the accuracy
    sum q_c p_c, which accounts for imbalanced labels. An accuracy is doubted if its 95 % confidence
    interval includes this chance level and ends below halfway from it to 1 (Cohen's kappa 0.5).
    Source: J. Cohen, A Coefficient of Agreement for Nominal Scales, 1960.

    Args:
        answers: predicted class numbers, one per sample.
        classes: the number of classes.
        labels: true labels, one per sample. If they are not class numbers, such as targets of a
            regression, nothing is doubted.
        source: the origin of the samples; the sentence starts with it.
        is_named: whether the data has class names, whose order `--labels` changes.
    """
    start = f"{source}: " if source else ""
    count = len(answers)
    truth = class_numbers(labels, count, classes)
    if count < FEWEST or classes < 2 or (labels is not None and truth is None):
        return ""
    if truth is not None and (text := _at_chance(answers, truth, classes, is_named)):
        return f"{start}{text}"
    if np.ptp(answers):
        return ""
    most = (1 + 1 / classes) / 2 if truth is None else np.bincount(truth).max() / count
    if most**count >= RARE:
        return ""
    text = f"the predictions are all class {answers[0]}: is the preprocessing right? (--preprocess)"
    return f"{start}{text}"


def _at_chance(answers: Array, labels: Array, classes: int, is_named: bool) -> str:
    """Return a sentence if the accuracy does not exceed chance, or an empty string."""
    count = len(answers)
    given, right = (np.bincount(item, minlength=classes) / count for item in (answers, labels))
    # Shuffling has no effect on labels of one class.
    chance = float(given @ right) if np.ptp(labels) else 1 / classes
    hits = int(np.sum(answers == labels))
    low, high = wilson(hits, count)
    if low > chance or high >= (1 + chance) / 2:
        return ""
    if not np.ptp(answers):
        return ""  # the caller reports this case
    asked, options = "labels", "--preprocess"
    if is_named:
        asked, options = "the order of the classes", "--labels, --preprocess"
    return (
        f"{hits} of {count} predictions are right, no more than guesses would be "
        f"({100 * chance:.1f} %): are {asked} and preprocessing right? ({options})"
    )


def class_numbers(labels: Array | None, count: int, classes: int) -> Array | None:
    """Return labels as class numbers, int64 [samples], or None if they are not class numbers.

    One-hot labels [samples, classes] of any dtype are converted.
    """
    if labels is None or not labels.size:
        return None
    if labels.shape == (count, classes) and classes > 1:
        is_one = labels == 1
        if not (is_one.sum(1) == 1).all() or np.count_nonzero(labels) != count:
            return None
        return np.asarray(is_one.argmax(1))
    if labels.dtype.kind not in "iu" or labels.size != count:
        return None
    flat = labels.reshape(-1).astype(np.int64)
    return flat if ((flat >= 0) & (flat < classes)).all() else None


def class_name(number: int, names: Sequence[str]) -> str:
    """Return a class as readable text, such as `5 sandal`."""
    known = names[number] if number < len(names) else ""
    return str(number) if known in ("", str(number)) else f"{number} {known}"


@dataclass(frozen=True)
class WeakClass:
    """A class that a model never predicts right, or significantly less often than before."""

    number: Annotated[int, Written("class")]
    label: str
    """The class number and, if known, the class name."""
    samples: int
    right: tuple[int, ...]
    """The number of samples that each model predicts right."""

    @property
    @written()
    def text(self) -> str:
        """A sentence for people."""
        before = "" if len(self.right) < 2 else f", {self.right[0]} before"
        return f"class {self.label}: {self.right[-1]} of {self.samples} samples right{before}"


def weak_classes(
    right: Sequence[Array | None],
    labels: Array | None,
    classes: int,
    names: Sequence[str] = (),
) -> tuple[WeakClass, ...]:
    """Return the classes on which the last model fails although the total may look good.

    It predicts none of n samples right, which has a probability below 0.05 at its total accuracy p:
    (1 - p)^n. Or it predicts fewer right than the first model: the 95 % confidence interval of the
    change is below zero. Both use Bonferroni's correction for the number of classes.

    Args:
        right: for each model, whether each sample is right, bool [samples]. Other values are those
            of a metric without classes, for which nothing is returned.
        labels: class numbers or one-hot labels.
        classes: the number of classes.
        names: class names by number; may be empty.
    """
    known = [model for model in right if model is not None and model.dtype == bool]
    if labels is None or len(known) < len(right):
        return ()
    first, last = known[0], known[-1]
    numbers = class_numbers(labels.astype(np.int64), len(last), classes)
    if numbers is None:
        return ()
    found = np.unique(numbers).tolist()
    quantile = NormalDist().inv_cdf(1 - RARE / 2 / len(found))
    results = []
    for number in found:
        chosen = numbers == number
        counts = tuple(int(model[chosen].sum()) for model in known)
        never = not counts[-1] and (1 - last.mean()) ** chosen.sum() < RARE / len(found)
        fewer = counts[-1] < counts[0]
        if never or (fewer and paired_wilson(first[chosen], last[chosen], quantile)[1] < 0):
            label = class_name(number, names)
            results.append(WeakClass(number, label, int(chosen.sum()), counts))
    return tuple(results)


Pair = tuple[str, str]  # a tensor of the reference and the tensor of the result

_SHAPES = frozenset({"Rank", "Shape", "ShapeN", "Size"})  # they do not read values
_SAME_VALUE = frozenset(
    {"CheckNumerics", "Identity", "PreventGradient", "Snapshot", "StopGradient"}
)


COMPARED = "compared"  # its values, or varying ones that depend on both, were compared; or an input
FREE = "free"  # it does not depend on input values, so one run of both graphs compares it
ALIKE = "alike"  # the same op computes both
DIFFERENT = "different"


@dataclass(frozen=True)
class Origin:
    """How both graphs compute a pair of tensors, as far as they do it the same way."""

    kind: str
    inputs: tuple[Pair, ...] = ()
    must_be_empty: bool = True
    """False if it follows a choice or cannot be fetched (in a loop or branch, or a handle)."""


Origins = Mapping[Pair, Origin]


@dataclass(frozen=True)
class Uncovered:
    """Outputs whose values alone verify nothing, and the tensors that they depend on."""

    empty: tuple[Pair, ...]
    constant: tuple[Pair, ...]
    origins: Origins

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.empty or self.constant)


def nothing_compared(reference: Graph, result: Graph, differences: Sequence[Difference]) -> str:
    """Return why equal values verify nothing, or an empty string."""
    if not any(difference.finite for difference in differences):
        return "the reference gives no finite value, so nothing was compared"
    for item in differences:
        if item.output in reference.outputs and item.size and not item.finite:
            return f"output '{item.output}' of the reference has no finite value on any sample"
    depends = any(
        producer_name(tensor) in graph.descendants(map(producer_name, graph.inputs), control=False)
        for graph in (reference, result)
        for tensor in graph.outputs
    )
    if depends and max(difference.distinct for difference in differences) < 2:
        return (
            "the reference gives one value everywhere for all inputs, so a wrong result would look "
            "the same"
        )
    return ""


def uncovered(
    reference: Graph,
    result: Graph,
    paired: Pairing,
    differences: Sequence[Difference],
    names: Mapping[str, str],
) -> Uncovered:
    """Return the outputs that are empty on all samples, and those that are constant by a choice.

    Args:
        reference: the reference graph.
        result: the graph compared with it.
        paired: the compared tensors.
        differences: the differences, in the order of the pairs.
        names: inputs of the result by inputs of the reference.
    """
    empty, constant, pairs = list[Pair](), list[Pair](), paired.pairs
    for pair, value in zip(pairs, differences, strict=True):
        if value.output in reference.outputs:
            if not value.size:
                empty.append(pair)
            elif value.distinct < 2 and value.output in paired.behind:
                constant.append(pair)
    if not empty and not constant:
        return Uncovered((), (), {})
    left = {*empty, *constant}
    found = [(p, d) for p, d in zip(pairs, differences, strict=True) if d.finite and p not in left]
    compared = {*(pair for pair, _ in found), *names.items()}
    varying = [pair for pair, difference in found if difference.distinct > 1]
    walk = _Walk(reference, result, compared, varying)
    return Uncovered(tuple(empty), tuple(constant), walk.origins([*empty, *constant]))


class _Walk:
    """A walk from outputs towards inputs, along ops that are the same in both graphs."""

    def __init__(
        self,
        reference: Graph,
        result: Graph,
        compared: Collection[Pair],
        varying: Iterable[Pair],
    ) -> None:
        """Prepare the walk; `varying` are compared tensors with several values."""
        self._graphs = reference, result
        self._compared = {self._source(pair) for pair in compared}
        self._fed = [_depending_on_values(graph) for graph in self._graphs]
        self._depths = conditional_depths(reference)
        self._behind = frozenset[str]().union(*(stage.nodes for stage in choices(reference)))
        functions = [{f.signature.name: f for f in g.library.function} for g in self._graphs]
        self._functions = [
            {name: item.SerializeToString(deterministic=True) for name, item in known.items()}
            for known in functions
        ]
        self._shown = self._affecting(varying)

    def origins(self, pairs: Sequence[Pair]) -> dict[Pair, Origin]:
        result: dict[Pair, Origin] = {}
        waiting = list(pairs)
        while waiting:
            pair = waiting.pop()
            if pair not in result:
                result[pair] = origin = self._origin(self._source(pair))
                waiting += origin.inputs
        return result

    def _source(self, pair: Pair) -> Pair:
        a, b = (_source(graph, t) for graph, t in zip(self._graphs, pair, strict=True))
        return a, b

    def _origin(self, pair: Pair) -> Origin:
        if pair in self._compared:
            return Origin(COMPARED)
        nodes = [graph.producer(t) for graph, t in zip(self._graphs, pair, strict=True)]
        name = nodes[0].name
        is_array = not self._depths[name] and not _is_handle(nodes[0], pair[0])
        if is_array and not any(n.name in fed for n, fed in zip(nodes, self._fed, strict=True)):
            return Origin(FREE)
        inputs = self._inputs(pair)
        if inputs is None:
            return Origin(COMPARED if pair in self._shown else DIFFERENT)
        return Origin(ALIKE, inputs, is_array and name not in self._behind)

    def _inputs(self, pair: Pair) -> tuple[Pair, ...] | None:
        """Return the inputs of the op that computes both tensors; None if they are not alike."""
        node, other = (graph.producer(t) for graph, t in zip(self._graphs, pair, strict=True))
        inputs = [list(map(normal, each.data_inputs)) for each in (node, other)]
        ports = {split(tensor)[1] for tensor in pair}
        is_fed = any(g.is_input(n.name) for g, n in zip(self._graphs, (node, other), strict=True))
        is_alike = not is_fed and len(ports) == 1 and len(inputs[0]) == len(inputs[1])
        if not is_alike or node.op != other.op or not self._same_attributes(node, other):
            return None
        return tuple(zip(*inputs, strict=True))

    def _affecting(self, pairs: Iterable[Pair]) -> Collection[Pair]:
        """Return the pairs on whose values these pairs depend in the same way in both graphs.

        A node alone does not suffice: the result may read it for one output and not for another.
        """
        starts = set(map(self._source, pairs))

        def read(pair: Pair) -> list[Pair]:
            is_constant = pair in self._compared and pair not in starts
            if is_constant or self._graphs[0].producer(pair[0]).op in _SHAPES:
                return []
            return [self._source(each) for each in self._inputs(pair) or ()]

        return reached(starts, read)

    def _same_attributes(self, node: Node, other: Node) -> bool:
        a, b = ({k: v for k, v in n.attrs.items() if k[:1] != "_"} for n in (node, other))
        if node.op == "Const":
            return bool(np.array_equal(node.value, other.value))
        called = {str(v.func.name) for v in a.values() if v.HasField("func")} | {node.op}
        own, others = self._functions
        return a == b and all(own.get(name) == others.get(name) for name in called)


def _source(graph: Graph, tensor: str) -> str:
    """Return the tensor that a tensor gets its values from unchanged."""
    tensor = normal(tensor)
    node = graph.producer(tensor)
    while node.op in _SAME_VALUE and node.data_inputs and not graph.is_input(node.name):
        tensor = normal(node.data_inputs[0])
        node = graph.producer(tensor)
    return tensor


def _depending_on_values(graph: Graph) -> set[str]:
    """Return the nodes whose values depend on input values, not only on input shapes."""

    def readers(name: str) -> list[str]:
        return [reader.name for reader in graph.readers(name) if reader.op not in _SHAPES]

    return set(reached(map(producer_name, graph.inputs), readers))


def _is_handle(node: Node, tensor: str) -> bool:
    types = output_types(node) if node.op in op_defs() else None
    port = split(tensor)[1]
    return types is None or port >= len(types) or types[port] in ("resource", "variant")
