"""A convolution of a mirror-padded image can pad the image while it reads it."""

from deploykit.transforms.fuse_resize_pad_and_conv import PAD, fuse_before_conv
from deploykit.transforms.ir.graph import Graph


def fuse_pad_and_conv(graph: Graph) -> None:
    """Fuse MirrorPad and Conv2D into one FusedPadConv2D.

    It needs less memory, and about a third more time on current CPUs. TensorFlow computes only the
    first image of a batch correctly, so the batch must be known to be 1.
    """
    fuse_before_conv(graph, PAD)
