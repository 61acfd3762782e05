"""Batches of images in the order of tensor cores' fragments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.engine.workspace import Array, Device

EDGE, TILE = 16, 8  # images or features: of a fragment, of a matrix in it


def fragments(device: Device, batches: Sequence[Array], pairs: int = 0, tiles: int = 0) -> Array:
    """Batches of images (B, I) as matrices of 16 images by 16 features, each as four of 8 by 8.

    Returns float16 (steps, tiles, pairs, 2, 2, 8, 8), padded with zeros, by default up to the next sixteen. After the
    last feature comes the bias's pixel, 1.
    """
    steps, (batch, inputs) = len(batches), batches[0].shape
    tiles, pairs = tiles or -(-(inputs + 1) // EDGE), pairs or -(-batch // EDGE)
    images = device.empty((steps, pairs * EDGE, tiles * EDGE), np.float16)
    images[...] = 0
    for own, pixels in zip(images, batches, strict=True):
        own[:batch, :inputs] = pixels
    images[:, :, inputs] = 1
    split = images.reshape(steps, -1, 2, TILE, tiles, 2, TILE).transpose(0, 4, 1, 2, 5, 3, 6)
    matrices = device.empty(split.shape, np.float16)
    matrices[...] = split
    return matrices
