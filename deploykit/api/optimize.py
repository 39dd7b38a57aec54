"""The standard transforms, which keep a model's numbers."""

from typing import Annotated

from deploykit.api.comparison import DEFAULT, VerifyOptions
from deploykit.api.public import Command, public
from deploykit.freezing.open_model import open_model
from deploykit.rewriting.pipelines import OPTIMIZE
from deploykit.rewriting.rewrite import OutputFiles, rewrite
from deploykit.text.progress import working
from deploykit.transforms.core.display.flag import FORCE, Flag, output_flag
from deploykit.transforms.core.graph import Graph
from deploykit.verification.public_types import ModelLike, PathLike


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
    of the model as it was read, or if they could not be compared.

    Args:
        model: whatever `open_model` takes.
        how: on which inputs the result is compared, and against which bar.
        output: a `.pb` file to write too.
        verify: whether the result is compared with the model where no file is written, too. What is
            written is always loaded, run and compared first.

    GraphError: the model is not sound, or the data do not fit its inputs. VerificationError: the
    result differs, or nothing could be compared. RefusedError: the model acts on files or
    processes.

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
        opened = open_model(model)
        opened.refuse_effects(how.allow_ops)
        proof = how.proof(opened) if is_compared else None
        return rewrite(opened, opened.frozen, OPTIMIZE, target, work, proof)
