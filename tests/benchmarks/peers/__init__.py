"""TFLite, ONNX Runtime and OpenVINO beside TensorFlow, in 8 bits: speed and answers of four nets.

    python -m tests.benchmarks peers            all of them
    python -m tests.benchmarks peers:resnet50   one

The peers are installed into a virtual environment of their own. Each quantizes a net by its own
standard recipe, with the same samples, and where the net is trained a second time, with so many of
its noisiest layers in float as keep 22 dB. Our codes run in OpenVINO too. In every place (so many
samples, threads and calls in flight) all then run in turn, each in a process of its own and in its
best settings, with the same samples. A short trial in that place chooses TensorFlow's settings for
each of its graphs. The answers of a model in 8 bits are set against those of its own runtime in
float.
"""

from collections.abc import Iterator, Mapping, Sequence

from deploykit.system.machine import machine
from deploykit.transforms.int8.int8_kernels import sums_exactly
from tests.benchmarks.figures import Figure
from tests.benchmarks.peers.answers import answers
from tests.benchmarks.peers.contestants import Contestant, in_tensorflow
from tests.benchmarks.peers.in_8_bits import peers
from tests.benchmarks.peers.nets import (
    ACCURATE,
    IN_OPENVINO,
    INT8,
    NETS,
    ON_ONE_THREAD,
    OVER_TENSORFLOW,
    Net,
)
from tests.benchmarks.peers.places import EIGHT, FLYING, ONE, PLACES, TWO, Place
from tests.benchmarks.peers.turns import Entry, Taken, at_best, in_turn
from tests.benchmarks.runtimes import environment

PARTS = tuple(NETS)
AHEAD = 1.0
OWN_RECIPES = {ONE: 1.0, TWO: 0.95, EIGHT: 0.95, FLYING: 1.0}
"""How many times as fast as a peer's own 8 bits, which keep 13 to 18 dB, our codes have to be."""
QUIET = 0.1  # cores that others keep busy in a round


def figures(only: str = "") -> list[Figure]:
    """Prepare each net, run its models in turn in four places, and compare their answers."""
    found: list[Figure] = []
    with environment.keeping_memory():
        for name in [only] if only else NETS:
            net = NETS[name]()
            found += figures_of(net, [*in_tensorflow(net), *peers(net)])
    return found


def figures_of(net: Net, contestants: Sequence[Contestant]) -> Iterator[Figure]:
    """Yield how fast the models of a net are, each in its best settings, and what they answer."""
    best: dict[Entry, Entry] = {}
    for place in PLACES:
        running = entries(contestants, place)
        best |= {each: at_best(each, QUIET) for each in running if each not in best}
        taken, others = in_turn([best[each] for each in running], QUIET)
        what = f"{net.name} {place}: what others kept busy"
        yield Figure(what, "cores", others, at_most=QUIET)
        yield from speeds(taken)
        yield from beside(net, place, taken)
    yield from answers(contestants)


def entries(contestants: Sequence[Contestant], place: Place) -> list[Entry]:
    """Return who runs in a place: TensorFlow's graphs, and the peers' in 8 bits.

    Where a call has two threads, ours also runs on one.
    """
    found = [Entry(each, place) for each in contestants if not each.is_peer or each.is_int8]
    alone = (each for each in contestants if each.is_ours and each.form == INT8 and place == TWO)
    return found + [Entry(each, ONE) for each in alone]


def speeds(taken: Mapping[Entry, Taken]) -> Iterator[Figure]:
    """Yield the samples a second of each beside those of the first; the ratio is the speed-up."""
    first: Sequence[float] = ()
    for entry, each in taken.items():
        rates = [1000 * entry.place.batch / ms for ms in each.ms]
        first = first or rates
        how = f"{each.settings}; memory kept; {processor()}"
        what = f"{entry.contestant.net.name} {entry.place}: {entry.contestant.name}"
        yield Figure(f"{what}, {each.median:.3g} ms ({how})", "/s", rates, first)


def beside(net: Net, place: Place, taken: Mapping[Entry, Taken]) -> Iterator[Figure]:
    """Yield how fast each of ours is beside others in 8 bits; above 1, it is faster."""
    int8 = {entry: each for entry, each in taken.items() if entry.contestant.is_int8}
    for own, ours in int8.items():
        if not own.contestant.is_ours or own.place != place:
            continue
        for entry, each in int8.items():
            rival = entry.contestant
            name = rival.name
            if rival.is_ours and entry.place != place:
                name = f"{rival.form} at {entry.place}"
            elif rival.is_ours and (rival.is_peer or not own.contestant.is_peer):
                continue
            ratios = [theirs / mine for theirs, mine in zip(each.ms, ours.ms, strict=True)]
            what = f"{net.name} {place}: our {own.contestant.form} / {name} ({processor()})"
            yield Figure(what, "x", ratios, at_least=_bar(net, own, entry))


def _bar(net: Net, own: Entry, rival: Entry) -> float | None:
    """Return how many times as fast as a rival one of ours has to be, or None."""
    isa, place, other = "vnni" if sums_exactly("auto") else "avx2", own.place, rival.contestant
    bars = net.bars.get(isa, {}).get(place, {})
    is_accurate = other.form.startswith(ACCURATE)
    if own.contestant.form == IN_OPENVINO:
        if other.is_ours:
            return bars.get(OVER_TENSORFLOW) if rival.place == place else None
        if isa != "vnni" or not net.trained:
            return None
        return AHEAD if is_accurate else OWN_RECIPES[place]
    if own.contestant.form != net.ours[-1] or is_accurate:
        return None
    return bars.get(ON_ONE_THREAD if other.is_ours else other.module)


def processor() -> str:
    """Return the CPU's name, and which instructions for 8 bits it has."""
    seen = machine()
    flags = [flag for flag in seen["flags"] if "vnni" in flag or "amx" in flag]
    return f"{seen['cpu']}, {' '.join(flags) or 'no VNNI'}"
