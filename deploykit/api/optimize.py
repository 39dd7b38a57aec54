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
        verify: whether the result is compared with the model where no file is written, too. What
            is written is always loaded, run and compared first.
        options: fields of `Comparison`: `data`, `preprocess`, `shapes`, `input_range`,
            `allowed_ops`, `tolerance`, `allow_unverified`.

    GraphError: the model is not sound, or the data do not fit its inputs. VerificationError: the
    result differs, or nothing could be compared. RefusedError: the model acts on files or
    processes.

    Example:
        >>> graph = deploykit.optimize("fashion.keras", verify=True)
        >>> graph.report.verification.passed
        True
    """
    (how,) = with_options("optimize", options, how)
    target = OutputFiles(output, force)
    target.check(model)
    is_compared = verify or how.data is not None or output is not None
    if not is_compared:
        how.refuse_unused()
    with working("optimize") as work:
        opened = open_model(model)
        opened.refuse_effects(how.allowed_ops)
        proof = how.proof(opened) if is_compared else None
        return rewrite(opened, opened.frozen, OPTIMIZE, target, work, proof)
