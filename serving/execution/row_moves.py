"""Rules for ops that reduce or index along axes, move elements, or measure shapes."""

from collections.abc import Mapping

from deploykit.serving.execution.row_rules import (
    Facts,
    Kind,
    Kinds,
    Rows,
    What,
    common,
    first,
    must,
    same,
    table,
)
from deploykit.transforms.ir.node import Node
from deploykit.transforms.shapes.sizes import product


def _reduced(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Reductions and similar ops along axes given by an input."""
    rows, rank = first(kinds), proof.rank(node)
    must(all(range(rank)[axis] for axis in proof.numbers(node, 1)))
    return rows


def _joined(proof: Facts, node: Node, kinds: Kinds) -> What:
    *parts, axis = kinds
    same([axis])
    (along,) = proof.numbers(node, len(parts))
    if not any(isinstance(kind, Rows) for kind in kinds):
        begins = parts[0] == Kind.SHAPE and along == 0
        return Kind.SHAPE if begins and set(parts[1:]) <= {Kind.SAME} else Kind.SIZES
    must(all(isinstance(kind, Rows) for kind in parts))
    must(range(proof.rank(node))[along] != 0)
    return common(parts)


def _packed(proof: Facts, node: Node, kinds: Kinds) -> What:
    if not any(isinstance(kind, Rows) for kind in kinds):
        begins = kinds[0] == Kind.COUNT and not node.attr("axis", 0)
        return Kind.SHAPE if begins and set(kinds[1:]) <= {Kind.SAME} else Kind.SIZES
    must(all(isinstance(kind, Rows) for kind in kinds))
    must(range(proof.rank(node) + 1)[node.attr("axis", 0)] != 0)
    return common(kinds)


def _unpacked(proof: Facts, node: Node, kinds: Kinds) -> What:
    must(range(proof.rank(node))[node.attr("axis", 0)] != 0)
    return first(kinds)


def _cut(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Split has inputs (axis, rows), SplitV (rows, sizes, axis)."""
    read, along = (1, 0) if node.op == "Split" else (0, 2)
    (axis,) = proof.numbers(node, along)
    must(range(proof.rank(node, read))[axis] != 0)
    return first([kinds[read], *kinds[:read], *kinds[read + 1 :]])


def _padded(proof: Facts, node: Node, kinds: Kinds) -> What:
    must(proof.numbers(node, 1)[:2] == [0, 0])
    return first(kinds)


def _turned(proof: Facts, node: Node, kinds: Kinds) -> What:
    must(proof.numbers(node, 1)[0] == 0)
    return first(kinds)


def _tiled(proof: Facts, node: Node, kinds: Kinds) -> What:
    if list(kinds) == [Kind.SAME, Kind.SHAPE]:
        must(proof.shape(node.data_inputs[0])[0] == 1)
        return Rows()
    must(proof.numbers(node, 1)[0] == 1)
    return first(kinds)


def _filled(_: Facts, node: Node, kinds: Kinds) -> What:
    must(list(kinds) == [Kind.SHAPE, Kind.SAME])
    return Rows()


def _squeezed(proof: Facts, node: Node, kinds: Kinds) -> What:
    axes, rank = node.attr("squeeze_dims") or [], proof.rank(node)
    must(bool(axes) and all(range(rank)[axis] for axis in axes))
    return first(kinds)


def _expanded(proof: Facts, node: Node, kinds: Kinds) -> What:
    (axis,) = proof.numbers(node, 1)
    must(range(proof.rank(node) + 1)[axis] != 0)
    return first(kinds)


def _looked_up(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Gather rows of a table by index, columns of each row, or per row its own columns."""
    table, numbers = kinds[:2]
    same(kinds[2:])
    axis = proof.numbers(node, 2)[0] if node.op == "GatherV2" else 0
    own = node.attr("batch_dims", 0)
    if isinstance(table, Rows):
        axis = range(proof.rank(node))[axis]
        must(axis > 0 and own == (1 if isinstance(numbers, Rows) else 0))
    else:
        must(axis == 0 and own == 0)
    return common((table, numbers))


def _found(_: Facts, node: Node, kinds: Kinds) -> What:
    """Look up strings in a table that nothing in this graph writes."""
    table, words, default = kinds
    same((table, default))
    must(isinstance(words, Rows))
    return words


def _one_hot(_: Facts, node: Node, kinds: Kinds) -> What:
    must(node.attr("axis", -1) != 0)
    return first(kinds)


def _ensured(_: Facts, node: Node, kinds: Kinds) -> What:
    shape = node.attr("shape")
    must(shape is None or shape[0] < 0)
    return first(kinds)


def _measured(_: Facts, node: Node, kinds: Kinds) -> What:
    return Kind.SHAPE if kinds[0] == Rows() else Kind.SIZES


def _sliced(proof: Facts, node: Node, kinds: Kinds) -> What:
    begin, count = (proof.numbers(node, place)[0] for place in (1, 2))
    must(begin == 0 and count == -1)
    return first(kinds)


def _strided(proof: Facts, node: Node, kinds: Kinds) -> What:
    masks = {name: node.attr(f"{name}_mask", 0) for name in
             ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}  # fmt: skip
    begin, end, step = (proof.numbers(node, place) for place in (1, 2, 3))
    same(kinds[1:])
    if kinds[0] == Kind.SHAPE and len(begin) == 1 and step == [1]:
        return _part_of_shape(masks, begin[0], end[0])
    if not isinstance(kinds[0], Rows):
        return Kind.SIZES
    if masks["ellipsis"] & 1:
        held = masks["new_axis"] | masks["ellipsis"]
        read = sum(not held >> place & 1 for place in range(len(begin)))
        must(proof.rank(node) > read)  # the ellipsis covers at least the batch axis
    else:
        must(not (masks["new_axis"] | masks["shrink_axis"]) & 1)
        must(bool(masks["begin"] & 1 or begin[0] == 0) and bool(masks["end"] & 1))
        must(step[0] == 1)
    return kinds[0]


def _part_of_shape(masks: Mapping[str, int], begin: int, end: int) -> What:
    """Return the kind of a slice of a shape that begins with the number of examples."""
    if masks["ellipsis"] or masks["new_axis"] or begin < 0:
        return Kind.SIZES
    start = 0 if masks["begin"] else begin
    if masks["shrink_axis"]:
        return Kind.SAME if begin else Kind.COUNT
    if start:
        return Kind.SAME
    return Kind.SHAPE if masks["end"] or end > 0 else Kind.SIZES


def _reshaped(proof: Facts, node: Node, kinds: Kinds) -> What:
    """Reshape: the order of elements is kept, so rows stay whole if their size is known."""
    rows, sizes = kinds
    if not isinstance(rows, Rows):
        return Kind.SIZES
    if sizes == Kind.SHAPE:
        return Rows()
    must(sizes in (Kind.SAME, Kind.SIZES))
    (_, *given), (count, *expected) = (proof.shape(t) for t in (node.data_inputs[0], node.name))
    elements, width = rows.each * product(1, *given), product(1, *expected)
    must(count < 0 < min(elements, width) and elements % width == 0)
    return Rows(elements // width)


MOVING = table(
    (_reduced, "All Any ArgMax ArgMin Cumprod Cumsum Max Mean Min Prod ReverseV2 Sum"),
    (_joined, "ConcatV2"),
    (_packed, "Pack"),
    (_unpacked, "Unpack"),
    (_cut, "Split SplitV"),
    (_padded, "MirrorPad Pad PadV2"),
    (_turned, "Transpose"),
    (_tiled, "Tile"),
    (_filled, "Fill"),
    (_squeezed, "Squeeze"),
    (_expanded, "ExpandDims"),
    (_looked_up, "Gather GatherV2 ResourceGather"),
    (_found, "LookupTableFindV2"),
    (_one_hot, "OneHot"),
    (_ensured, "EnsureShape"),
    (_measured, "Shape"),
    (_sliced, "Slice"),
    (_strided, "StridedSlice"),
    (_reshaped, "Reshape"),
)  # fmt: skip
