"""Image files -> pixels, by TensorFlow's own decoder in a child process."""

from collections.abc import Sequence

from deploykit.photos.image_files import too_large
from deploykit.transforms.core.errors import LimitError
from deploykit.transforms.core.tensors import Array


class Decoder:
    """What decodes images; it lives in a child process, where TensorFlow starts."""

    def decode(self, contents: Sequence[bytes], channels: int = 0) -> list[Array | str]:
        """Return the pixels of each image, uint8 [height, width, channels], or what is wrong.

        With 0 channels, as many as the file has. Of an animation, the first image is taken.
        """
        import tensorflow as tf

        found: list[Array | str] = []
        for content in contents:
            if refused := too_large(content):
                found.append(str(refused))
                continue
            try:
                image = tf.io.decode_image(content, channels, expand_animations=False)
                found.append(image.numpy())
            except tf.errors.ResourceExhaustedError as error:
                raise LimitError("image-too-large", reason=error.message.splitlines()[0]) from None
            except tf.errors.OpError as error:
                reason = error.message.splitlines()[0] if error.message else "no reason given"
                found.append(f"it cannot be decoded: {reason}")
        return found
