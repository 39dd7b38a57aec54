"""Transforms run on a graph, in the order given."""

from typing import Any

from deploykit.api.comparison import DEFAULT, Comparison
from deploykit.freezing.open_model import open_model
from deploykit.rewriting.rewrite import OutputFiles, rewrite
from deploykit.rewriting.transform import check_ranges_of
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import GraphDef


def transform(
    model: Any,
    transforms: str,
    how: Comparison = DEFAULT,
    *,
    output: Any = None,
    force: bool = False,
    verify: bool = False,
    as_text: bool = False,
    dump: Any = None,
    **options: Any,
) -> Graph:
    """Return a graph after a transform string, such as `"fold_constants fold_batch_norms"`.

    A GraphDef file is taken as it stands; any other model is frozen first. The graph's `report`
    says what each step did.

    Args:
        model: whatever `open_model` takes.
        transforms: the string; `deploykit.list_transforms()` lists what may stand in it, and
            `package.module:function` is one of your own.
        how: with `verify`: on which inputs, and against which bar.
        output: a file to write too.
        force: whether to replace it where it exists.
        verify: whether both graphs are run and compared before the result is written.
        as_text: whether a text proto is written.
        dump: a folder for the graph after each step.
        options: fields of `Comparison`.

    PipelineError: the string does not parse. GraphError: a transform cannot be applied.
    RefusedError: the model acts on files or processes.
    VerificationError: the result differs, and the first step that breaks the bar is named; or
    nothing was compared.

    Example:
        >>> folded = deploykit.transform("fashion.pb", "fold_constants fold_batch_norms")
        >>> [(step.transform, step.nodes) for step in folded.report.steps][0]
        ('fold_constants', 89)
        >>> any(node.op == "Rsqrt" for node in folded)
        False
    """
    (how,) = with_options("transform", options, how)
    if not verify:
        how.refuse_unused()
    target = OutputFiles(output, force, as_text, dump)
    target.check(model)
    with working("transform") as work:
        opened = open_model(model)
        opened.refuse_effects(how.allowed_ops, runs=verify)
        check_ranges_of(transforms, opened)
        proof = how.proof(opened, reference=opened.graph) if verify else None
        return rewrite(opened, opened.graph, transforms, target, work, proof)


def TransformGraph(
    input_graph_def: GraphDef,
    inputs: list[str],
    outputs: list[str],
    transforms: list[str],
) -> GraphDef:
    """Return a transformed GraphDef: the Graph Transform Tool's Python function, for old code.

    Example:
        >>> before = deploykit.load_graph("fashion.pb").to_graph_def()
        >>> steps = ["fold_constants", "fold_batch_norms"]
        >>> after = deploykit.TransformGraph(before, ["images"], ["probabilities"], steps)
        >>> len(after.node) < len(before.node)
        True
    """
    graph = Graph.from_graph_def(input_graph_def, inputs, outputs)
    return transform(graph, " ".join(transforms)).to_graph_def()
