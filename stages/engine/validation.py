"""How many images a forward pass of a validation takes, for rungs and references alike."""

from __future__ import annotations

MOST_IMAGES = 2560  # of a pass on a GPU: they fill it, and a layer's outputs take some megabytes


def images_of_a_pass(images: int, batch_size: int, *, on_gpu: bool) -> int:
    """The size of every pass over `images` but the last: on a GPU in few passes, not in the training's batches.

    A CPU launches nothing, and keeps the outputs of a small batch in its caches.
    """
    if not on_gpu or batch_size >= MOST_IMAGES:
        return min(images, batch_size)
    passes = -(-images // MOST_IMAGES)
    return -(-images // passes) if passes else 0
