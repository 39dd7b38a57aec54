"""How much each int8 layer of a quantization-aware model differs from its fake-quants."""

from deploykit.quantization.accuracy import Judge
from deploykit.quantization.fake_quant.missing_ranges import with_missing_ranges
from deploykit.quantization.fake_quant.stated_layers import stated_layers
from deploykit.quantization.sensitivity import JUDGED, STEPS, Sensitivity, rank_each
from deploykit.rewriting.fake_quant_graph import read_fake_quants, stated_int8_graph
from deploykit.text.progress import Work, unseen
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.ranges import TensorRange
from deploykit.verification.samples import Dataset, samples_in


def stated_sensitivity(
    graph: Graph, samples: Dataset, isa: str = "auto", work: Work | None = None
) -> Sensitivity:
    """Rank the layers of a quantization-aware graph: each alone is int8, by the stated scales.

    GraphError: as in `calibrate` and `Judge`.
    """
    work = work or unseen("sensitivity", *STEPS)
    with samples.named():
        calibrating, held_out, note, _ = samples.split()
        feeds, judged = calibrating.feeds(), held_out.spread(JUDGED).feeds()
    work.begin("calibrate")
    stated, notes = with_missing_ranges(read_fake_quants(graph), feeds)
    planned, ranking, together = stated.plan(), [], None
    if planned.chains:
        with Judge(graph, judged) as judge:
            together = judge.judge(stated_int8_graph(stated, isa))
            ranking = rank_each(
                {layer: stated.graph[layer].op for layer in planned.chains},
                lambda layer: stated_int8_graph(stated, isa, planned.chains.keys() - {layer}),
                judge.judge,
                advance=work.begin("rank"),
            )
    ranges = {e.layer: e.range for e in stated_layers(stated, planned)}
    return Sensitivity(
        tuple(ranking),
        together,
        planned.reasons,
        {layer: TensorRange(*ends) for layer, ends in ranges.items() if ends is not None},
        (calibrating.count, samples_in(judged)),
        tuple(filter(None, [note, *notes])),
    )
