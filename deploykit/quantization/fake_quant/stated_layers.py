"""What became of each layer of a quantization-aware model."""

from deploykit.quantization.result import LayerOutcome
from deploykit.rewriting.fake_quant_graph import FakeQuantGraph
from deploykit.text.templates import listed
from deploykit.transforms.core.int8.form import Form
from deploykit.transforms.core.int8.plan import Plan
from deploykit.transforms.core.layers.layers import LAYER_OPS


def stated_layers(stated: FakeQuantGraph, planned: Plan) -> tuple[LayerOutcome, ...]:
    """Return the outcome of each layer, in execution order."""
    outcomes = []
    for node in map(stated.graph.__getitem__, stated.graph.order()):
        if node.op in LAYER_OPS:
            chain = planned.chains.get(node.name)
            form = None if chain is None else planned.forms.get(chain.nodes[-1].name)
            range_ = None if form is None else _range(form)
            outcomes.append(
                LayerOutcome(node.name, node.op, planned.reasons.get(node.name, ""), range_)
            )
    return tuple(outcomes)


def _range(form: Form) -> tuple[float, float]:
    return form.offset, form.top * form.step + form.offset


def rounding_notes(stated: FakeQuantGraph, planned: Plan, isa: str) -> list[str]:
    """Return a note on layers whose int8 codes `isa` cannot sum, so which are rounded again."""
    names = stated.rounded_again(planned, isa)
    if not names:
        return []
    return [
        f"the weights of {len(names)} layers are rounded to fewer levels than the model states, as "
        f"AVX2 sums pairs of products in 16 bits: {listed(sorted(names), 3)}; --isa vnni keeps them"
    ]
