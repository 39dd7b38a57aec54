"""A peer's float model in 8 bits: by its own recipe, or with its noisiest layers left in float."""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import replace

from deploykit.transforms.runtime.child_process import call
from tests.benchmarks.peers.answers import sqnr_db
from tests.benchmarks.peers.contestants import CONVERSION, OPENVINO, Contestant, in_float
from tests.benchmarks.peers.nets import ACCURATE, DECIBELS, IN_OPENVINO, INT8, Net
from tests.benchmarks.peers.places import PLACES
from tests.benchmarks.runtimes import environment

RANKED_WITH = 16
"""Samples that calibrate where layers are ranked."""
BATCHES = sorted({place.batch for place in PLACES})
_ENDINGS = {"tflite": "tflite", "onnx_runtime": "onnx", "open_vino": "xml"}


def quantized(
    plain: Contestant,
    form: str,
    keep_float: Sequence[str] = (),
    count: int = environment.EVERY,
    batches: Sequence[int] = BATCHES,
) -> Contestant:
    """Return a peer's model in 8 bits, calibrated with the first `count` samples.

    `keep_float` are the names of layers as `noise` has them.
    """
    net = plain.net
    target = net.file(f"{form.replace(' ', '_')}.{_ENDINGS[plain.module]}")
    if plain.module == "tflite":  # TensorFlow converts, and takes all samples
        for batch in batches:
            how = (str(net.model), net.shapes(batch), net.output, f"{target}.b{batch}")
            call(f"{CONVERSION}:to_tflite", *how, str(net.calibration), list(keep_float))
    else:
        environment.quantize(
            plain.module, plain.model, net.calibration, target, net.kind,
            count=count, keep_float=keep_float,
        )  # fmt: skip
    return replace(plain, form=form, model=target)


def accurate(plain: Contestant, decibels: float) -> Contestant:
    """Return a peer's model in 8 bits but for as few of its noisiest layers as keep so much.

    They stay float by the option that the peer's own quantizer has for it. The pictures that judge
    are those by which layers are chosen, which is in the peer's favour.
    RuntimeError: not even with all layers in float.
    """
    exact, order = plain.outputs(), _noisiest_first(plain)
    kept: dict[int, float] = {}

    def keeps(count: int) -> bool:
        found = quantized(plain, ACCURATE, order[:count], batches=BATCHES[:1])
        kept[count] = sqnr_db(found.outputs(), exact)
        return kept[count] >= decibels

    count = bisect.bisect_left(range(len(order)), True, key=keeps)
    found = quantized(plain, ACCURATE, order[:count])
    said = f"{plain.name}: {count} of {len(order)} layers in float"
    if (keeps_db := sqnr_db(found.outputs(), exact)) < decibels:
        raise RuntimeError(f"{said} keep {keeps_db:.1f} dB")
    print(f"{said} keep {keeps_db:.1f} dB")
    return replace(found, form=f"{ACCURATE}, {count} of {len(order)} layers float")


def _noisiest_first(plain: Contestant) -> list[str]:
    """Return the layers by their noise: TFLite tells it, others show it with one in 8 bits."""
    net = plain.net
    if plain.module == "tflite":
        how = (str(net.model), net.shapes(1), net.output, str(net.calibration))
        noise: dict[str, float] = call(f"{CONVERSION}:tflite_noise", *how)
        return sorted(noise, key=lambda layer: -noise[layer])
    layers, exact = environment.layers(plain.module, plain.model), plain.outputs()

    def alone(layer: str) -> float:
        others = [each for each in layers if each != layer]
        return sqnr_db(quantized(plain, ACCURATE, others, RANKED_WITH).outputs(), exact)

    return sorted(layers, key=alone)


def peers(net: Net) -> Iterator[Contestant]:
    """Yield each peer in float and in 8 bits, and our codes in OpenVINO.

    Where the net is trained, each peer comes also in 8 bits that are as exact as ours.
    """
    for plain in in_float(net):
        yield plain
        yield quantized(plain, INT8)
        if net.trained:
            yield accurate(plain, DECIBELS)
        if plain.module == OPENVINO:
            yield replace(plain, form=IN_OPENVINO, model=net.in_8_bits(IN_OPENVINO))
