"""A layer followed by a batch norm op in inference mode is the same layer with other weights."""

from transforms.core.affine import BATCH_NORM_OPS, BIAS_OPS
from transforms.core.graph import Graph
from transforms.fold_batch_norms import fold_steps


def fold_old_batch_norms(graph: Graph) -> None:
    """Fold the batch norm ops alone: the Graph Transform Tool's name for what it knew of old files.

    Folds FusedBatchNorm v1 to V3 and BatchNormWithGlobalNormalization; `fold_batch_norms` folds
    these and the forms made of single ops.
    """
    fold_steps(graph, BATCH_NORM_OPS | BIAS_OPS, needed=BATCH_NORM_OPS)
