"""A convolution of a resized image can resize the image while it reads it."""

from deploykit.transforms.fuse_resize_pad_and_conv import RESIZE, fuse_before_conv
from deploykit.transforms.ir.graph import Graph


def fuse_resize_and_conv(graph: Graph) -> None:
    """Fuse ResizeBilinear and Conv2D into one FusedResizeAndPadConv2D without padding.

    It needs less memory, and about twice the time on current CPUs. TensorFlow computes only the
    first image of a batch correctly, so the batch must be known to be 1.
    """
    fuse_before_conv(graph, RESIZE)
