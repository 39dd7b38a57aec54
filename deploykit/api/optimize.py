"""The standard transforms, which keep a model's numbers."""

from typing import Any

from deploykit.api.comparison import DEFAULT, Comparison
from deploykit.freezing.open_model import open_model
from deploykit.rewriting.pipelines import OPTIMIZE
from deploykit.rewriting.rewrite import OutputFiles, rewrite
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.graph import Graph


def optimize(
    model: Any,
    how: Comparison = DEFAULT,
    *,
    output: Any = None,
    force: bool = False,
    verify: bool = False,
    **options: Any,
) -> Graph:
    """Return a model frozen, stripped and folded; its numbers stay.

    The graph's `report` says what each step did, and how near it came where it was compared.

    Args:
        model: whatever `open_model` takes.
        how: on which inputs the result is compared, and against which bar.
        output: a `.pb` file to write too.
        force: whether to replace it where it exists.
        verify: whether nothing is written unless the result was compared with the model; it is so
            with data. Without it, what is written is loaded and run once as well, and compared as
            far as the model itself can be run on the inputs.
        options: fields of `Comparison`: `data`, `preprocess`, `shapes`, `input_range`,
            `allowed_ops`, `tolerance`, `allow_unverified`.

    GraphError: the model is not sound, or the data do not fit its inputs. VerificationError: the
    result differs, or nothing was compared although it was asked for. RefusedError: the model acts
    on files or processes.

    Example:
        >>> graph = deploykit.optimize("fashion.keras", verify=True)
        >>> graph.report.verification.passed
        True
    """
    (how,) = with_options("optimize", options, how)
    target = OutputFiles(output, force)
    is_asked = verify or how.data is not None
    target.check(model)
    with working("optimize") as work:
        opened = open_model(model)
        opened.refuse_effects(how.allowed_ops)
        proof = None
        if is_asked or output is not None:
            proof = how.proof(opened, is_asked=is_asked)
        return rewrite(opened, opened.frozen, OPTIMIZE, target, work, proof)
