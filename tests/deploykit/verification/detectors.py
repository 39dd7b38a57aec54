"""Small detectors as TensorFlow 1 freezes them: a backbone, heads, decoded boxes, and a choice.

Convolutions have no bias and are followed by FusedBatchNorm, which `optimize` folds. So a
comparison must end in front of the choice, and cannot follow equal nodes to the image.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.support import building, random, tf

ANCHORS = 3  # per cell
KEPT = 5  # detections of an image
NAMES = ("detection_boxes", "detection_scores", "detection_classes", "num_detections")

Detections = tuple[Any, ...]  # of a batch: boxes, scores, classes from 1, and their count


def _conv(x: Any, filters: int, name: str, stride: int = 1) -> Any:
    """Return Relu6(FusedBatchNorm(Conv2D(FusedBatchNorm(DepthwiseConv2dNative(x)))))."""
    depth = x.shape[-1]
    with tf.name_scope(name):
        weights = tf.constant(random(3, 3, depth, 1, seed=1), name="depthwise")
        x = tf.nn.depthwise_conv2d(x, weights, [1, stride, stride, 1], "SAME")
        x = _normalized(x, depth)
        weights = tf.constant(2 * random(1, 1, depth, filters, seed=2), name="weights")
        return tf.nn.relu6(_normalized(tf.nn.conv2d(x, weights, 1, "SAME"), filters))


def _normalized(x: Any, depth: int) -> Any:
    parameters = [random(depth, seed=n, low=low, high=1) for n, low in enumerate((0.5, -1, -1))]
    variance = random(depth, seed=3, low=0.2, high=0.5)
    return tf.compat.v1.nn.fused_batch_norm(x, *parameters, variance, is_training=False)[0]


def _head(x: Any, filters: int, name: str) -> Any:
    """Return a 1x1 convolution with a bias."""
    with tf.name_scope(name):
        weights = tf.constant(random(1, 1, x.shape[-1], filters, seed=4), name="weights")
        return tf.nn.bias_add(tf.nn.conv2d(x, weights, 1, "SAME"), 0.1 * random(filters, seed=5))


def _preprocessed(image: Any, side: int) -> Any:
    """Resize image by image in a loop, as TensorFlow 1's detectors do."""
    with tf.name_scope("Preprocessor"):
        floats = tf.cast(image, tf.float32)
        resized = tf.map_fn(
            lambda one: tf.compat.v1.image.resize_images(one, [side, side]), floats, tf.float32
        )
        return tf.reshape(resized, [-1, side, side, 3]) * (2 / 255) - 1


def _decoded(encoded: Any, anchors: Any) -> Any:
    """Return corners from offsets relative to anchors (center y, center x, height, width)."""
    with tf.name_scope("Decode"):
        center = anchors[..., :2] + 0.1 * encoded[..., :2] * anchors[..., 2:]
        half = 0.5 * anchors[..., 2:] * tf.exp(0.2 * encoded[..., 2:])
        return tf.concat([center - half, center + half], -1)


def _anchors(cells: int) -> np.ndarray:
    places = (np.arange(cells, dtype=np.float32) + 0.5) / cells
    grid = np.stack(np.meshgrid(places, places, indexing="ij"), -1).reshape(-1, 1, 2)
    sizes = np.array([[0.2, 0.3], [0.3, 0.2], [0.4, 0.4]], np.float32)
    boxes = [np.broadcast_to(a, (cells**2, ANCHORS, 2)) for a in (grid, sizes)]
    return np.concatenate(boxes, -1).reshape(-1, 4)


def _pick(boxes: Any, scores: Any, version: str) -> Any:
    """Return the indices that a version of NonMaxSuppression retains."""
    limits = {"iou_threshold": 0.5, "max_output_size": KEPT}
    scored = limits | {"score_threshold": 0.05}
    if version == "2":
        return tf.raw_ops.NonMaxSuppressionV2(boxes=boxes, scores=scores, **limits)
    if version == "3":
        return tf.raw_ops.NonMaxSuppressionV3(boxes=boxes, scores=scores, **scored)
    op = tf.raw_ops.NonMaxSuppressionV4 if version == "4" else tf.raw_ops.NonMaxSuppressionV5
    more = {"soft_nms_sigma": 0.5} if version == "5" else {}
    result = op(boxes=boxes, scores=scores, pad_to_max_output_size=True, **scored, **more)
    return result.selected_indices[: result.valid_outputs]


def by_class(version: str) -> Callable[[Any, Any], Detections]:
    """Return the suppression of one image, class by class; then the best of all classes."""

    def choose(boxes: Any, scores: Any) -> Detections:
        kept = []
        for number in range(scores.shape[-1]):
            with tf.name_scope(f"MultiClassNonMaxSuppression/{number}"):
                column = scores[:, number]
                chosen = _pick(boxes, column, version)
                of_class = tf.zeros_like(tf.gather(column, chosen)) + number
                kept.append((tf.gather(boxes, chosen), tf.gather(column, chosen), of_class))
        found, values, classes = (tf.concat(part, 0) for part in zip(*kept, strict=True))
        best = tf.nn.top_k(values, tf.minimum(KEPT, tf.shape(values)[0])).indices
        found, values, classes = (tf.gather(item, best) for item in (found, values, classes))
        count = tf.shape(best)[0]
        missing = [0, KEPT - count]
        padded = (tf.pad(item, [missing]) for item in (values, classes))
        return (tf.pad(found, [missing, [0, 0]]), *padded, tf.cast(count, tf.float32))

    return choose


def image_by_image(version: str) -> Callable[[Any, Any], Detections]:
    """Return the suppression by class in a loop over the images of a batch."""

    def choose(boxes: Any, scores: Any) -> Detections:
        one = by_class(version)
        with tf.name_scope("BatchMultiClassNonMaxSuppression"):
            types = (tf.float32,) * 4
            found, values, classes, count = tf.map_fn(lambda x: one(*x), (boxes, scores), types)
        return found, values, classes + 1, count

    return choose


def first_image(version: str) -> Callable[[Any, Any], Detections]:
    """Return the suppression by class of the only image of a batch, outside of a loop."""

    def choose(boxes: Any, scores: Any) -> Detections:
        found, values, classes, count = by_class(version)(boxes[0], scores[0])
        return found[None], values[None], classes[None] + 1, count[None]

    return choose


def combined(boxes: Any, scores: Any) -> Detections:
    """Return what CombinedNonMaxSuppression retains."""
    result = tf.image.combined_non_max_suppression(boxes[:, :, None], scores, KEPT, KEPT, 0.5, 0.05)
    return result[0], result[1], result[2] + 1, tf.cast(result[3], tf.float32)


def _ssd(choose: Callable[[Any, Any], Detections], classes: int, has_softmax: bool) -> Any:
    def detect(x: Any) -> Detections:
        x = _conv(_conv(x, 8, "backbone/0", 2), 8, "backbone/1", 2)
        boxes = tf.reshape(_head(x, 4 * ANCHORS, "box_head"), [-1, 16 * ANCHORS, 4])
        columns = classes + has_softmax  # a Softmax has a column for the background
        scores = tf.reshape(_head(x, columns * ANCHORS, "class_head"), [-1, 16 * ANCHORS, columns])
        scores = tf.nn.softmax(scores)[..., 1:] if has_softmax else tf.sigmoid(scores)
        return choose(_decoded(boxes, _anchors(4)), scores)

    return detect


def _two_stages(choose: Callable[[Any, Any], Detections], classes: int) -> Any:
    """Return a detector that crops proposals out of its features and looks at them again."""

    def detect(x: Any) -> Detections:
        x = _conv(_conv(x, 8, "backbone/0", 2), 8, "backbone/1", 2)
        scores = tf.reshape(_head(x, 2 * ANCHORS, "proposal_scores"), [-1, 16 * ANCHORS, 2])
        boxes = tf.reshape(_head(x, 4 * ANCHORS, "proposal_boxes"), [-1, 16 * ANCHORS, 4])
        boxes = _decoded(boxes, _anchors(4))
        proposals = image_by_image("3")(boxes, tf.nn.softmax(scores)[..., 1:])[0]
        images = tf.repeat(tf.range(tf.shape(x)[0]), KEPT)
        flat = tf.reshape(proposals, [-1, 4])
        crops = tf.image.crop_and_resize(x, flat, images, [4, 4])
        y = tf.reduce_mean(_conv(tf.reshape(crops, [-1, 4, 4, 8]), 8, "second/0"), [1, 2])
        y = tf.reshape(y, [-1, 1, 1, 8])
        encoded = tf.reshape(_head(y, 4, "box_head"), [-1, KEPT, 4])
        scores = tf.reshape(_head(y, classes + 1, "class_head"), [-1, KEPT, classes + 1])
        corners = proposals[..., :2], proposals[..., 2:]
        anchors = tf.concat([(corners[0] + corners[1]) / 2, corners[1] - corners[0]], -1)
        return choose(_decoded(encoded, anchors), tf.nn.softmax(scores)[..., 1:])

    return detect


def _centers(classes: int) -> Any:
    """Return a detector that takes the highest peaks of a heat map."""

    def detect(x: Any) -> Detections:
        x = _conv(_conv(x, 8, "backbone/0", 2), 8, "backbone/1")
        heat = tf.sigmoid(_head(x, classes, "class_head"))
        sizes = _head(x, 4, "box_head")
        peaks = tf.where(tf.nn.max_pool2d(heat, 3, 1, "SAME") > heat, tf.zeros_like(heat), heat)
        best = tf.nn.top_k(tf.reshape(tf.reduce_max(peaks, -1), [-1, 64]), KEPT)
        images = tf.tile(tf.range(tf.shape(x)[0])[:, None], [1, KEPT])
        places = tf.stack([images, best.indices], -1)
        numbers = tf.gather_nd(tf.reshape(tf.argmax(heat, -1), [-1, 64]), places)
        centers = tf.cast(tf.stack([best.indices // 8, best.indices % 8], -1), tf.float32)
        chosen = tf.gather_nd(tf.reshape(sizes, [-1, 64, 4]), places)
        corners = [(centers + sign * tf.exp(chosen[..., n : n + 2])) / 8
                   for sign, n in ((-1, 0), (1, 2))]  # fmt: skip
        count = tf.reduce_sum(tf.cast(best.values > 0.1, tf.float32), -1)
        return tf.concat(corners, -1), best.values, tf.cast(numbers, tf.float32) + 1, count

    return detect


DETECTORS: dict[str, Callable[[int], Callable[[Any], Detections]]] = {
    **{
        f"ssd, version {version}": lambda n, version=version: _ssd(first_image(version), n, False)
        for version in "2345"
    },
    "ssd, combined": lambda n: _ssd(combined, n, False),
    "ssd, softmax, image by image": lambda n: _ssd(image_by_image("3"), n, True),
    "ssd, sigmoid, image by image": lambda n: _ssd(image_by_image("5"), n, False),
    "two stages": lambda n: _two_stages(image_by_image("3"), n),
    "two stages, combined": lambda n: _two_stages(combined, n),
    "centers": _centers,
}


def layers(kind: str) -> list[str]:
    """Return the names of the layers of a kind of detector."""
    first = ["backbone/0", "backbone/1", "box_head", "class_head"]
    more = ["proposal_boxes", "proposal_scores", "second/0"] if "two stages" in kind else []
    return first + more


def detector(kind: str, classes: int, wrong: str = "", side: int = 16) -> Graph:
    """Return a frozen detector; `wrong` is the name of a layer with a wrong output channel.

    The image is uint8 [batch, height, width, 3], of any batch and size.
    """
    tf.compat.v1.disable_control_flow_v2()
    with building(["image_tensor"], NAMES) as graph:
        image = tf.compat.v1.placeholder(tf.uint8, [None, None, None, 3], "image_tensor")
        result = DETECTORS[kind](classes)(_preprocessed(image, side))
        for name, value in zip(NAMES, result, strict=True):
            tf.identity(value, name=name)
    graph.prune()
    if wrong:
        node = graph[f"{wrong}/weights"]
        weights = np.array(node.value)
        weights[..., 0] *= -1
        graph.replace(node, Node.constant(node.name, weights))
    return graph
