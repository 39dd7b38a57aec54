"""Whatever a layer asks for: what a transform writes loads, runs, and gives the numbers it gave.

Each transform that writes an op with limits gets every combination of what kernels differ in; the
result runs in a child process, as wrong graphs may end it, or the layer was left alone.
"""

import random as shuffling
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploykit.transforms.fuse_resize_pad_and_conv import fuse_before_conv
from deploykit.transforms.int8 import plan, quantized_ops
from deploykit.transforms.int8.int8_kernels import flags
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.ir import kernel_limits
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.kernel_limits import LIMITS, KernelLimits, limit
from deploykit.transforms.use_onednn_kernels import KERNELS as FLOAT_KERNELS
from tests import pairwise
from tests.support import because, building, random, tf, transform
from tests.transforms.layer_matrix import (
    OUT,
    C,
    Case,
    Runner,
    batches,
    biased,
    cases,
    feeds,
    net,
)

BARS = {"float32": 1e-5, "float64": 1e-12, "float16": 1e-2, "bfloat16": 6e-2}
EIGHT_BITS = 0.05  # of the largest value; a wrong channel or pixel is off by far more
QUICK = 12  # cases of each transform in the quick suite
SLOW = 50  # in the slow one, and those with every pair of two dimensions


def mirrored(case: Case, y):
    rows = np.array(case.around(((2, 1), (0, 3)), (0, 0)), np.int32)
    return tf.raw_ops.MirrorPad(input=y, paddings=rows, mode="REFLECT", name="pad")


def resized(case: Case, y):
    return tf.raw_ops.ResizeBilinear(images=y, size=[11, 8], name="resize")


def padded(case: Case, y):
    rows = np.array(case.around(((1, 1), (1, 1)), (0, 0)), np.int32)
    return tf.raw_ops.Pad(input=y, paddings=rows, name="pad")


def _blocks(case: Case, pads) -> tuple[list[int], list]:
    return ([1, 2, 2], [(0, 0), *pads]) if case.first else ([2, 2], pads)


def split(case: Case, y):
    block, pads = _blocks(case, [(2, 3), (2, 2)])
    return tf.raw_ops.SpaceToBatchND(input=y, block_shape=block, paddings=pads, name="split")


def merged(case: Case, y):
    block, crops = _blocks(case, [(0, 1), (0, 0)])
    y = tf.raw_ops.BatchToSpaceND(input=y, block_shape=block, crops=crops, name="merge")
    return biased(case, y)


def read_again(case: Case, y):
    """A layer with a sign behind the layer, which takes a shift back."""
    layout = "NCHW" if case.first else "NHWC"
    channels = OUT if case.kind == "conv" else 2 * C
    y = tf.nn.bias_add(y, tf.constant(random(channels, seed=3), case.dtype), layout)
    return tf.nn.conv2d(y, tf.constant(random(1, 1, channels, 3), case.dtype), 1, "VALID", layout)


def as_it_is(case: Case, y):
    return y


# By transform: what lies before the layer, and behind it.
WRITERS = {
    "fuse_pad_and_conv": (mirrored, biased),
    "fuse_resize_and_conv": (resized, biased),
    "fuse_resize_pad_and_conv": (lambda case, y: mirrored(case, resized(case, y)), biased),
    "fuse_dilations": (split, merged),
    "flatten_atrous_conv": (split, merged),
    "fold_pads": (padded, biased),
    "quantize_nodes": (as_it_is, biased),
    "quantize_static": (as_it_is, biased),
    "use_onednn_kernels": (as_it_is, biased),
    "shift_activations": (as_it_is, read_again),
    "equalize_channels": (as_it_is, read_again),
    "convert_layout(to=NHWC)": (as_it_is, biased),
    "convert_layout(to=NCHW)": (as_it_is, biased),
}


NCHW_TYPES = ("float32", *(["bfloat16"] if "avx512f" in flags() else []))
"""What oneDNN has for NCHW on this CPU; the rest is a GPU's."""


def builds(name: str, case: Case) -> bool:
    """Say whether TensorFlow takes such a layer, and an ordinary graph has it."""
    if "resize" in name and (case.first or case.dtype not in ("float32",)):
        return False  # ResizeBilinear gives float32, and knows no other layout
    if name == "convert_layout(to=NCHW)":
        return case.dtype in NCHW_TYPES
    return "ranges" not in text_of(name, "") or case.dtype == "float32"


def text_of(name: str, path: object) -> str:
    calibrated = name in ("quantize_static", "shift_activations", "equalize_channels")
    return f'{name}(ranges="{path}")' if calibrated else name


def write_ranges(graph: Graph, runner: Runner, case: Case, path: Path) -> None:
    """Write what every tensor holds, but no channels of an image whose rank is not known."""
    depends = graph.descendants(["x"]) | {"x"}
    names = [name for name in graph.order() if name in depends]
    found, every = {}, Graph(graph, graph.inputs, names)
    runs = [runner.run(every, feeds(case, batch)) for batch in batches(case)]
    for name, *values in zip(names, *runs, strict=True):
        value = np.moveaxis(np.concatenate(values), 1 if case.first else -1, -1)
        rows = value.reshape(-1, value.shape[-1])
        lists = (rows.mean(0), rows.min(0), rows.max(0))
        if name == "x" and case.shape == "no rank":
            lists = ((), (), ())
        known = (tuple(map(float, each)) for each in lists)
        found[name] = TensorRange(float(rows.min()), float(rows.max()), *known)
    path.write_text(Ranges("", 1, found).text())


def outcome(name: str, case: Case, runner: Runner, folder: Path) -> str:
    """Return "right", "left alone", or "" where the graph did not run before. Asserts all else."""
    before, behind = WRITERS[name]
    graph = net(case, before, behind)
    given = {batch: feeds(case, batch) for batch in batches(case)}
    expected = {batch: runner.run(graph, each) for batch, each in given.items()}
    if any(isinstance(found, str) for found in expected.values()):
        return ""
    text = text_of(name, folder / "ranges.json")
    if "ranges" in text:
        write_ranges(graph, runner, case, folder / "ranges.json")
    result = transform(graph, text)
    if str(result) == str(graph):
        return "left alone"
    bar = EIGHT_BITS if "quantize" in name else BARS[case.dtype]
    for batch, (wanted,) in expected.items():
        found = runner.run(result, given[batch])
        assert not isinstance(found, str), (case, batch, found)
        assert found[0].shape == wanted.shape, (case, batch)
        aside = np.abs(found[0].astype(np.float64) - wanted.astype(np.float64)).max()
        assert aside <= bar * np.abs(wanted.astype(np.float64)).max(), (case, batch)
    return "right"


def check(name: str, chosen: list[Case], folder: Path, onednn="1", grappler=False) -> Counter:
    """Return how many cases had which outcome."""
    runner = Runner(onednn, grappler)
    try:
        return Counter(outcome(name, case, runner, folder) for case in chosen)
    finally:
        runner.close()


@pytest.fixture(scope="module")
def shared():
    """A child process for all quick tests: TensorFlow starts but once."""
    runner = Runner()
    yield runner
    runner.close()


@pytest.mark.sampled
@pytest.mark.parametrize("name", WRITERS)
def test_a_few_layers(name, shared, tmp_path):
    """Half of them without anything unusual, or nearly all would be left alone."""
    every = [case for case in cases() if builds(name, case)]
    plain = [case for case in every if not case.first and case.dilations == (1, 1)]
    chosen = shuffling.Random(name).sample(every, QUICK // 2)
    chosen += shuffling.Random(name).sample(plain, QUICK - len(chosen))
    for case in chosen:
        outcome(name, case, shared, tmp_path)


GROUPED = Case(groups=2, shape="only batch")


@pytest.mark.sampled
@pytest.mark.parametrize("shape", ["known", "only batch"])
@pytest.mark.parametrize(
    "name", [name for name in WRITERS if name.startswith("fuse_") and "conv" in name]
)
def test_groups_are_not_fused(name, shape, shared, tmp_path):
    assert outcome(name, replace(GROUPED, shape=shape), shared, tmp_path) == "left alone"
    alike = "right" if shape == "known" else "left alone"
    assert outcome(name, Case(shape=shape), shared, tmp_path) == alike


def drawn(every: list[Case], are_all: bool) -> list[Case]:
    """Return all cases, or a random sample that has every pair of two dimensions."""
    if are_all:
        return every
    chance = shuffling.Random(pairwise.seed())
    few = pairwise.sample(every, lambda c: pairwise.pairs(tuple(vars(c).values())), pairwise.seed())
    return list(dict.fromkeys([*few, *chance.sample(every, min(SLOW, len(every)))]))


MANY = pytest.mark.parametrize(
    "are_all",
    [
        pytest.param(False, marks=pytest.mark.slow, id="sample"),
        pytest.param(True, marks=pytest.mark.full, id="all"),
    ],
)


@pytest.mark.sampled
@MANY
@pytest.mark.parametrize("onednn", "01")
@pytest.mark.parametrize("name", WRITERS)
def test_every_layer(name, onednn, are_all, tmp_path):
    if onednn == "0" and "convert" in name:
        pytest.skip("without oneDNN no processor runs NCHW")
    every = [c for c in cases() if builds(name, c)]
    found = check(name, drawn(every, are_all), tmp_path, onednn)
    # A sample may have no layer that one writer fuses: `fuse_pad_and_conv` takes few.
    assert not are_all or found["right"] > 5
    assert not are_all or found["left alone"] > 10 or "convert" in name
    assert found["right"] + found["left alone"]


@pytest.mark.sampled
@MANY
@pytest.mark.parametrize("name", WRITERS)
def test_every_layer_behind_grappler(name, are_all, tmp_path):
    """It fuses what was written further, and one such fusion ends the process."""
    every = (c for c in cases(dtype=("float32",)) if builds(name, c))
    # TensorFlow dies of these as they are
    chosen = [c for c in every if (c.kind, c.padding) != ("depthwise", "EXPLICIT")]
    found = check(name, drawn(chosen, are_all), tmp_path, grappler=True)
    assert not are_all or found["right"] > 5
    assert found["right"] + found["left alone"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "op", "case"),
    [
        ("fuse_pad_and_conv", "FusedPadConv2D", replace(GROUPED, shape="known")),
        ("fuse_pad_and_conv", "FusedPadConv2D", Case(shape="known", batch=3)),
        ("quantize_nodes", "QuantizedConv2D", GROUPED),
        ("quantize_nodes", "QuantizedConv2D", Case(strides=(1, 2))),
        ("quantize_nodes", "QuantizedConv2D", Case(dilations=(2, 2))),
        ("quantize_nodes", "QuantizedConv2D", Case(first=True)),
        ("quantize_static", "_FusedQuantizedConv2D", Case(groups=2)),
        ("use_onednn_kernels", "_MklNativeFusedConv2D", Case(dtype="float64")),
    ],
)
def test_the_check_catches_what_is_not_in_the_table(name, op, case, monkeypatch, tmp_path, shared):
    """With an op that claims to take all, the result fails to load, to run or to be right."""
    everything = KernelLimits(kernel_limits.FLOATS, *[""] * 7)
    monkeypatch.setitem(LIMITS, op, everything)
    with pytest.raises((AssertionError, KeyError)):
        outcome(name, case, shared, tmp_path)


def test_every_op_that_is_written_is_in_the_table():
    written = {kernel.op for kernel in quantized_ops.KERNELS.values()} | set(plan.OPS.values())
    written |= {op for op, _ in FLOAT_KERNELS.values()}
    assert written <= set(LIMITS)
    assert fuse_before_conv.__module__  # FusedPadConv2D and FusedResizeAndPadConv2D: looked up


A, B = None, 3  # an open batch, and another size
PAIRS = [
    ((A, C), (A, C)), ((A, C), (1, C)), ((A, C), (C,)), ((A, C), ()), ((A, 1), (A, 1)),
    ((A, C), (A, 1)), ((A, 1), (1, C)), ((A, C), (B, C)), ((A, C), (A, A)), ((A, A), (A, A)),
    ((A,), (A,)), ((A,), (B,)), ((A,), (1,)), ((A,), (A, C)), ((A, C), (A,)), ((A, 1, C), (A, C)),
    ((A, B, C), (A, C)), ((A, B, C), (A, 1, C)), ((A, B, C), (B, C)), ((A, B, C), (1, B, C)),
    ((A, A, C), (A, C)), ((A, A, C), (A, A, C)), ((A, 1, 1, C), (A, 1, 1, C)), (None, (C,)),
    ((A, B, 1, C), (1, C)), ((A, 2, B, C), (1, 1, C)), ((A, 2, B, C), (A, 1, 1, C)), (None, ()),
    ((A, A), (A, 1)), ((B, A), (A,)), ((B, A), (C,)), ((A, 2, A), (1, A)), ((1, A), (A, A)),
]  # fmt: skip


def summed(op: str, shapes) -> Graph:
    with building(["x", "y"], ["out"]) as graph:
        x, y = (
            tf.compat.v1.placeholder(tf.float32, shape, name=name)
            for name, shape in zip("xy", shapes, strict=True)
        )
        tf.identity(getattr(tf.raw_ops, op)(x=x, y=y), name="out")
    graph.prune()
    return graph


def fits(shape, known) -> bool:
    return known is None or (
        len(shape) == len(known) and all(k in (None, s) for s, k in zip(shape, known, strict=True))
    )


SIZES = [
    (), *[(a,) for a in (1, 2, 3, 4)], *[(a, b) for a in (1, 2, 3) for b in (1, 3, 4)],
    *[(a, b, 4) for a in (1, 2) for b in (1, 2, 3)],
    *[(a, 2, b, c) for a in (1, 2) for b in (1, 3) for c in (1, 4)],
    (1, 1, 1, 4), (2, 1, 1, 4), (2, 3, 1, 4),
]  # fmt: skip


@pytest.mark.sampled
def test_sums_of_open_shapes_are_right_at_every_batch(shared):
    """Or stay float: what is a vector at one batch is a matrix at another."""
    left = []
    for pair in PAIRS:
        for shapes in (pair, pair[::-1]):
            graph = summed("AddV2", shapes)
            result = transform(graph, "quantize_nodes")
            if str(result) == str(graph):
                left.append(shapes)
                continue
            for one in (size for size in SIZES if fits(size, shapes[0])):
                for other in (size for size in SIZES if fits(size, shapes[1])):
                    given = {"x": random(*one, seed=1), "y": random(*other, seed=2)}
                    wanted = shared.run(graph, given)
                    if isinstance(wanted, str):
                        continue  # they do not broadcast
                    found = shared.run(result, given)
                    assert not isinstance(found, str), (shapes, one, other, found)
                    assert np.abs(found[0] - wanted[0]).max() < 0.03, (shapes, one, other)
    assert ((A, C), (1, C)) not in left
    assert ((A, A), (A, A)) in left
    assert len(left) < len(PAIRS)


def test_the_reasons_say_who_cannot():
    graph = net(Case(shape="no rank"))
    layer = graph["layer"]
    op = "_FusedQuantizedConv2D"
    assert limit(op, layer, [None, (3, 3, C, OUT)]) == because("kernel-groups-unknown", op=op)
    placed = replace(layer, device="/device:GPU:0")
    unfit = because("device-unfit", device="/device:GPU:0", op="FusedPadConv2D")
    assert limit("FusedPadConv2D", placed) == unfit
