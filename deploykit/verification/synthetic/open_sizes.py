"""Inference of the open sizes of a graph's inputs from the ops that read them.

Each open size is a symbol that is propagated with the values, in execution order. Ops with
constants bind it, as a MatMul does with the rows of its weights. Inputs of the same Add or Concat
share symbols.
"""

import math
from collections.abc import Mapping, Sequence

from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal
from deploykit.transforms.layers.layers import LAYER_OPS, channels_first
from deploykit.transforms.shapes.rules import RULES
from deploykit.transforms.shapes.sizes import Shape
from deploykit.transforms.shapes.static_shapes import Shapes
from deploykit.verification.synthetic.input_uses import PRODUCTS, reads_sparse, sparse_triples

_UNCLEAR = (ArithmeticError, Error, IndexError, NotImplementedError, TypeError, ValueError)

_FOUR_AXES = """
    AvgPool BatchNormWithGlobalNormalization CropAndResize DepthToSpace ExtractImagePatches
    FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 LRN MaxPool MaxPoolWithArgmax ResizeArea
    ResizeBicubic ResizeBilinear ResizeNearestNeighbor SpaceToDepth
"""
_OF_EACH_ELEMENT = """
    Acos Acosh AsString Asin Asinh Atan Atanh Conj Cosh DecodeBase64 DecodeCompressed Digamma
    EnsureShape Expm1 Invert IsInf Lgamma PlaceholderWithDefault RegexReplace Sinh
    StaticRegexReplace StringLower StringStrip StringToHashBucket StringToHashBucketFast
    StringToHashBucketStrong StringToNumber StringUpper Swish
"""
# The index of the image input and its rank.
_IMAGES = {
    **{op: (0, rank) for op, rank in LAYER_OPS.items()},
    "Conv2DBackpropInput": (2, 4),
    **dict.fromkeys(_FOUR_AXES.split(), (0, 4)),
    "AvgPool3D": (0, 5),
    "MaxPool3D": (0, 5),
}
_RESIZED = frozenset(
    {"AvgPool", "AvgPool3D", "CropAndResize", "MaxPool", "MaxPool3D", "ResizeArea",
     "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"}
)  # fmt: skip
_SAME = {op for op, rule in RULES.items() if rule is RULES["Identity"]} | {
    *_OF_EACH_ELEMENT.split()
}
_JOINED = {op for op, rule in RULES.items() if rule is RULES["Add"]} | {"Select"}
_MOVED = frozenset(
    {"All", "Any", "ExpandDims", "Gather", "GatherV2", "Max", "Mean", "Min", "Prod", "Squeeze",
     "Sum", "Transpose", "Unpack"}
)  # fmt: skip
_REDUCED = "All Any ArgMax ArgMin Max Mean Min Prod StridedSlice Sum"
# The index of an input with a minimum rank, and the rank; or the index of the input with its axes.
_MIN_RANKS = {
    "LogSoftmax": (0, 2), "ParseExample": (0, 1), "ParseExampleV2": (0, 1), "Softmax": (0, 2),
    "StringSplit": (0, 1), "StringSplitV2": (0, 1), "TensorArrayScatterV3": (2, 1),
    "TensorListFromTensor": (0, 1), "TopKV2": (0, 2),
}  # fmt: skip
_AXES: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(_REDUCED.split(), (0, 1)),
    "ConcatV2": (0, -1), "GatherV2": (0, 2), "Split": (1, 0), "Unpack": (0, None),
}  # fmt: skip


class OpenSizes:
    """The shapes of inputs; an open size is a symbol, a number below -1."""

    def __init__(self, graph: Graph, shapes: Mapping[str, Shape | None]) -> None:
        """Bind open sizes; `shapes` are the known shapes by input, with -1 for open sizes."""
        self._graph = graph
        self._same: dict[int, int] = {}  # a symbol -> the size or symbol that it equals
        self._products: list[tuple[tuple[int, ...], int]] = []
        self._sums: list[tuple[list[int], int]] = []
        self._inputs = {
            tensor: None if shape is None else tuple(s if s >= 0 else self._new() for s in shape)
            for tensor, shape in shapes.items()
        }
        if all(s is not None and -1 not in s for s in shapes.values()):
            return
        self._own: dict[str, list[str]] = {}  # inputs by node
        for tensor in shapes:
            self._own.setdefault(graph.producer(tensor).name, []).append(tensor)
        self._known = Shapes(graph)
        self._found: dict[str, Shape | str | None] = {}
        for self._is_last in (False, True):  # the second pass uses the ranks of the first
            for name in graph.order():
                try:
                    self._visit(graph[name])
                except _UNCLEAR:
                    self._found.pop(name, None)
        for parts, whole in reversed(self._sums):
            self._share([self._root(part) for part in parts], self._root(whole))
        for sizes, expected in self._products:
            self._divide([self._root(size) for size in sizes], expected)

    def shapes(self, batch: int, other: int) -> dict[str, Shape]:
        """Return a shape for each input; unbound first sizes become `batch`, others `other`.

        An unknown rank becomes 0.
        """
        known = {tensor: tuple(map(self._root, s or ())) for tensor, s in self._inputs.items()}
        first = {shape[0] for shape in known.values() if shape}
        return {
            tensor: tuple(s if s >= 0 else batch if s in first else other for s in shape)
            for tensor, shape in known.items()
        }

    def found(self) -> dict[str, Shape | None]:
        """Return the inferred shape of each input, with -1 for unknown sizes."""
        return {
            tensor: None if shape is None else tuple(max(-1, self._root(s)) for s in shape)
            for tensor, shape in self._inputs.items()
        }

    def _new(self) -> int:
        symbol = -2 - len(self._same)
        self._same[symbol] = symbol
        return symbol

    def _root(self, size: int) -> int:
        path = []
        while size < -1 and self._same[size] != size:
            path.append(size)
            size = self._same[size]
        for passed in path:
            self._same[passed] = size
        return size

    def _equal(self, a: int, b: int) -> None:
        """Record that two sizes are equal; unknown sizes (-1) are ignored."""
        a, b = self._root(a), self._root(b)
        if a < -1 and b != -1:
            self._same[a] = b
        elif b < -1 and a != -1:
            self._same[b] = a

    def _shape(self, tensor: str, rank: int | None = None) -> Shape | None:
        """Return a tensor's shape; an input of unknown rank gets the given rank."""
        value = self._found.get(tensor)
        if isinstance(value, str):
            if self._inputs[value] is None and rank is not None:
                self._inputs[value] = tuple(self._new() for _ in range(rank))
            value = self._inputs[value]
        if value is None:
            value = self._known.shape(tensor)
        return None if value is None else tuple(map(self._root, value))

    def _visit(self, node: Node) -> None:
        name, op, tensors = node.name, node.op, node.data_inputs
        if op in _MIN_RANKS or op in _AXES:
            self._ranked(node)
        if name in self._own:
            self._found |= {normal(tensor): tensor for tensor in self._own[name]}
        elif op in _IMAGES or op in PRODUCTS:
            self._layer(node)
        elif op == "BiasAdd":
            shape = self._shape(tensors[0], 4 if channels_first(node) else 2)
            (channels,) = self._shape(tensors[1]) or (-1,)
            if shape:
                self._equal(shape[1 if channels_first(node) else -1], channels)
            self._found[name] = self._found.get(tensors[0], shape)
        elif op in _SAME and tensors:
            self._found[name] = self._found.get(tensors[0])
        elif op in _JOINED:
            self._found[name] = self._join(tensors)
        elif op == "ConcatV2":
            self._concat(node)
        elif op == "Reshape":
            self._reshape(node)
        elif op in _MOVED:
            self._move(node)
        elif reads_sparse(node):
            self._sparse(node)

    def _layer(self, node: Node) -> None:
        """Bind the channels of an image, or the columns of a matrix, to the weights."""
        tensors = node.data_inputs
        if node.op in PRODUCTS:
            self._product(node)
            return
        place, rank = _IMAGES[node.op]
        image = self._shape(tensors[place], rank)
        if image is None or len(image) != rank:
            return
        axis = 1 if channels_first(node) else rank - 1
        weights = None if node.op in _RESIZED or len(tensors) < 2 else self._shape(tensors[1])
        if node.op in LAYER_OPS and weights and len(weights) == rank:
            self._equal(image[axis], weights[-1 if node.op == "Conv2DBackpropInput" else -2])
        elif node.op.startswith("FusedBatchNorm") and weights:
            self._equal(image[axis], weights[0])
        if node.op in _RESIZED:
            result = [-1] * rank
            result[0], result[axis] = image[0], image[axis]
            self._found[node.name] = tuple(result)
        elif node.op.startswith(("FusedBatchNorm", "LRN", "BatchNorm")):
            self._found[node.name] = image

    def _product(self, node: Node) -> None:
        shapes = [self._shape(tensor) for tensor in node.data_inputs[:2]]
        ranks = [None if s is None else len(s) for s in shapes]
        rank = 2 if node.op == "MatMul" else ranks[0] or ranks[1] or 2
        a, b = (self._shape(tensor, rank) for tensor in node.data_inputs[:2])
        if not a or not b:
            return
        turned = [
            bool(node.attr(f"transpose_{side}", False) or node.attr(f"adj_{adj}", False))
            for side, adj in (("a", "x"), ("b", "y"))
        ]
        self._equal(a[-2 if turned[0] else -1], b[-1 if turned[1] else -2])
        if len(a) >= len(b):
            rows, columns = a[-1 if turned[0] else -2], b[-2 if turned[1] else -1]
            self._found[node.name] = (*a[:-2], rows, columns)

    def _join(self, tensors: Sequence[str]) -> Shape | str | None:
        """Bind broadcast sizes, from the last axis; a 1 is compatible with any size."""
        known = [s for tensor in tensors if (s := self._shape(tensor)) is not None]
        rank = max(map(len, known), default=0)
        if rank == 0:  # pass the open shape on unchanged
            return next((f for t in tensors if (f := self._found.get(t)) is not None), None)
        result = [1] * rank
        for tensor in tensors:
            # Next to one value per channel, the samples have a batch axis first.
            shape = self._shape(tensor, max(rank, 2))
            for axis in range(1, len(shape or ()) + 1):
                size = self._root(shape[-axis]) if shape else -1
                if axis > len(result):
                    result.insert(0, size)
                elif result[-axis] == 1:
                    result[-axis] = size
                elif size != 1:
                    self._equal(result[-axis], size)
                    result[-axis] = self._root(size) if size != -1 else result[-axis]
        return tuple(result)

    def _concat(self, node: Node) -> None:
        *parts, place = node.data_inputs
        constant = self._graph.constant(place)
        shapes = [s for tensor in parts if (s := self._shape(tensor)) is not None]
        if constant is None or not shapes:
            return
        rank = len(shapes[0])
        axis = range(rank)[int(constant.value)]
        ranked = [s for tensor in parts if (s := self._shape(tensor, rank)) and len(s) == rank]
        for entry in ranked:
            for at in range(rank):
                if at != axis:
                    self._equal(ranked[0][at], entry[at])
        joined = [self._root(item[axis]) for item in ranked]
        result = [*map(self._root, ranked[0])]
        if len(ranked) < len(parts) or -1 in joined:
            result[axis] = -1
        elif min(joined) >= 0:
            result[axis] = sum(joined)
        else:
            result[axis] = self._new()
            self._sums.append((joined, result[axis]))
        self._found[node.name] = tuple(result)

    def _reshape(self, node: Node) -> None:
        """Record the number of elements that the target shape requires."""
        constant = self._graph.constant(node.data_inputs[1])
        if constant is None:
            return
        sizes = tuple(constant.value.reshape(-1).tolist())
        shape = self._shape(node.data_inputs[0], len(sizes))
        if shape and sizes and min(sizes[1:], default=1) > 0:
            if sizes[0] == -1:
                self._products.append((shape[1:], math.prod(sizes[1:])))
            else:
                self._products.append((shape, math.prod(sizes)))
            self._found[node.name] = (shape[0] if sizes[0] == -1 else sizes[0], *sizes[1:])

    def _sparse(self, node: Node) -> None:
        """Bind the rows of indices to values, and their length to the rank, 2 by default."""
        tensors = node.data_inputs
        for indices, values, dense_shape in sparse_triples(node):
            rows, rank = self._shape(tensors[indices], 2), self._shape(tensors[dense_shape], 1)
            many = None if values is None else self._shape(tensors[values], 1)
            if rows and len(rows) == 2 and many:
                self._equal(rows[0], many[0])
            if rows and len(rows) == 2 and rank:
                self._equal(rows[1], rank[0])
                if self._is_last:
                    self._equal(rows[1], 2)

    def _share(self, parts: Sequence[int], whole: int) -> None:
        """Bind the open parts of a known sum to equal sizes."""
        is_open = [part for part in parts if part < -1]
        item, rest = divmod(whole - sum(part for part in parts if part >= 0), len(is_open) or 1)
        if whole >= 0 and item > 0 and not rest:
            for part in is_open:
                self._equal(part, item)

    def _divide(self, sizes: Sequence[int], expected: int) -> None:
        """Bind open sizes to equal values whose product gives the expected number of elements."""
        is_open = [size for size in sizes if size < -1]
        rest = math.prod(size for size in sizes if size >= 0)
        if not is_open or -1 in sizes or not rest or expected % rest:
            return
        item = round((expected // rest) ** (1 / len(is_open)))
        if item ** len(is_open) * rest == expected:
            for size in is_open:
                self._equal(size, item)

    def _ranked(self, node: Node) -> None:
        """Assign the minimum rank that a reader accepts to an input of unknown rank."""
        place, rank = _MIN_RANKS.get(node.op, (0, 1))
        if node.op in _AXES:
            place, at = _AXES[node.op]
            constant = None if at is None else self._graph.constant(node.data_inputs[at])
            axes = [node.attr("axis", 0)] if constant is None else constant.value.ravel().tolist()
            rank = max([axis + 1 if axis >= 0 else -axis for axis in axes], default=1)
            if node.op == "StridedSlice":
                rank = len(axes)
        shape = self._shape(node.data_inputs[place], rank if self._is_last else None)
        if shape and node.op == "Unpack":
            self._equal(shape[node.attr("axis", 0)], node.attr("num"))

    def _move(self, node: Node) -> None:
        shapes = [self._shape(tensor) for tensor in node.data_inputs]
        constants = [self._graph.constant(tensor) for tensor in node.data_inputs]
        if node.op == "Transpose" and constants[1] is not None:
            shapes[0] = self._shape(node.data_inputs[0], constants[1].value.size)
        values = [
            item.value if item is not None and place and item.value.dtype.kind == "i" else None
            for place, item in enumerate(constants)
        ]
        self._found[node.name] = RULES[node.op](node, shapes, values)
