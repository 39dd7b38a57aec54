"""transform and optimize: rewrite graphs."""

from typing import Annotated

from deploykit.api.comparison import DEFAULT, VerifyOptions
from deploykit.api.public import Command, public
from deploykit.importers.open_model import ModelLike
from deploykit.pipelines.rewrite import OutputFiles, rewrite
from deploykit.pipelines.transform import OPTIMIZE, check_ranges_of
from deploykit.rendering.progress import working
from deploykit.transforms.common.flag import FORCE, Flag, output_flag
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from deploykit.verification.samples import PathLike


@public(Command(heading="Transforms", writes_result=False))
def transform(
    model: Annotated[ModelLike, Flag("--in_graph --in-graph", format="home path", heading="Model")],
    transforms: Annotated[str, Flag("--transforms", metavar="STRING")],
    how: VerifyOptions = DEFAULT,
    *,
    output: Annotated[
        PathLike | None,
        Flag(
            "--out_graph --out-graph -o --output",
            format="home output",
            heading="Output",
            is_required=True,
        ),
    ] = None,
    force: Annotated[bool, FORCE] = False,
    verify: Annotated[bool, Flag(heading="Check")] = False,
    as_text: Annotated[
        bool, Flag("--output_as_text --output-as-text", format="true or false", heading="Output")
    ] = False,
    dump: Annotated[
        PathLike | None, Flag(format="home path", metavar="DIR", heading="Output")
    ] = None,
) -> Graph:
    """Run transforms on a graph, in the order given.

    Takes the same flags and transform string as transform_graph of the Graph Transform Tool.
    `deploykit transforms` lists the transforms, and `deploykit transforms NAME` explains one.

    If `verify` finds a difference, deploykit names the first step that changes the outputs too
    much, writes no out_graph, and exits with 5. With `dump`, DIR contains the graphs before that
    step.

    Args:
        model: Graph to read.
        transforms: Transforms to run in order, such as 'fold_constants(ignore_errors=true)
            fold_batch_norms'; package.module:function is your own transform.
        how: the inputs and the tolerance of the comparison, with `verify`.
        output: Graph to write.
        verify: Run the graph before and after. If the outputs differ, write nothing and name the
            step that caused it.
        as_text: Write the graph as text.
        dump: Write the graph after each step to this folder: DIR/01-NAME.pb and so on.

    PipelineError: the string does not parse. GraphError: a transform cannot be applied.
    RefusedError: the model acts on files or processes.
    VerificationError: the outputs differ, and the first step beyond the tolerance is named; or
    nothing could be compared.

    Commands:
        deploykit transform --in_graph=fashion.pb --out_graph=folded.pb
            --transforms='fold_constants fold_batch_norms' --verify
        deploykit transform --in_graph=fashion.pb --out_graph=small.pb
            --transforms=quantize_weights

    Example:
        >>> folded = deploykit.transform("fashion.pb", "fold_constants fold_batch_norms")
        >>> [(step.transform, step.nodes) for step in folded.report.steps][0]
        ('fold_constants', 89)
        >>> any(node.op == "Rsqrt" for node in folded)
        False
    """
    if not verify:
        how.refuse_unused()
    target = OutputFiles(output, force, as_text, dump)
    target.check(model)
    with working("transform") as work:
        opened = how.opened(model)
        opened.refuse_effects(how.allow_ops, runs=verify)
        check_ranges_of(transforms, opened)
        proof = how.proof(opened, reference=opened.graph) if verify else None
        return rewrite(opened, opened.graph, transforms, target, work, proof)


def TransformGraph(
    input_graph_def: GraphDef, inputs: list[str], outputs: list[str], transforms: list[str]
) -> GraphDef:
    """Return a transformed GraphDef, like the Graph Transform Tool's function of this name.

    Example:
        >>> before = deploykit.load_graph("fashion.pb").to_graph_def()
        >>> steps = ["fold_constants", "fold_batch_norms"]
        >>> after = deploykit.TransformGraph(before, ["images"], ["probabilities"], steps)
        >>> len(after.node) < len(before.node)
        True
    """
    graph = Graph.from_graph_def(input_graph_def, inputs, outputs)
    return transform(graph, " ".join(transforms)).to_graph_def()


@public(Command(heading="Check", runs_graph=True, writes_result=False), interface=())
def optimize(
    model: ModelLike,
    how: VerifyOptions = DEFAULT,
    *,
    output: Annotated[PathLike | None, output_flag(".optimized.pb")] = None,
    force: Annotated[bool, FORCE] = False,
    verify: Annotated[bool, Flag(is_python_only=True)] = False,
) -> Graph:
    """Make a model smaller and faster without changing its outputs.

    Runs inline_functions, strip_unused_nodes, remove_nodes, fold_constants, fold_batch_norms,
    merge_duplicate_nodes and sort_by_execution_order.

    deploykit loads and runs the new file once. Nothing is written if its outputs differ from those
    of the original model, or if they could not be compared.

    Args:
        model: any model that `open_model` accepts.
        how: the inputs and the tolerance of the comparison.
        output: also write the graph to this `.pb` file.
        verify: whether to compare the result with the model even if no file is written. A written
            file is always loaded, run and compared.

    GraphError: the model is invalid, or the data does not match its inputs. VerificationError: the
    outputs differ, or nothing could be compared. RefusedError: an op acts on files or processes.

    Commands:
        deploykit optimize fashion.pb -o optimized.pb
        deploykit optimize fashion.pb -o a.pb --data models/fashion/test_1000.npz

    Example:
        >>> graph = deploykit.optimize("fashion.keras", verify=True)
        >>> graph.report.verification.passed
        True
    """
    target = OutputFiles(output, force)
    target.check(model)
    is_compared = verify or how.data is not None or output is not None
    if not is_compared:
        how.refuse_unused()
    with working("optimize") as work:
        opened = how.opened(model)
        opened.refuse_effects(how.allow_ops)
        proof = how.proof(opened) if is_compared else None
        return rewrite(opened, opened.frozen, OPTIMIZE, target, work, proof)
