"""Batches of images in the order in which tensor cores take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.engine.workspace import Array, Device

EDGE, CHUNK = 16, 8  # images or features: of a fragment, of a matrix in it


def fragments(device: Device, batches: Sequence[Array], pairs: int = 0, tiles: int = 0) -> Array:
    """Batches of images (B, I) as matrices of 16 images by 16 features, each as four of 8 by 8.

    Returns float16 (steps, tiles, pairs, 2, 2, 8, 8), padded with zeros, by default up to the next sixteen. After the
    last feature comes the bias's pixel, 1.
    """
    batch, inputs = batches[0].shape
    tiles, pairs = tiles or -(-(inputs + 1) // EDGE), pairs or -(-batch // EDGE)
    images = _padded(device, batches, pairs, tiles)
    images[:, :, inputs] = 1
    split = images.reshape(len(batches), -1, 2, CHUNK, tiles, 2, CHUNK).transpose(0, 4, 1, 2, 5, 3, 6)
    return _without_gaps(device, split)


def matrices(device: Device, batches: Sequence[Array], tiles: int) -> Array:
    """Batches of images (B, I) as matrices of 8 images by 8 features, all images of the same features together.

    Returns float16 (steps, 2 * tiles, 2 * pairs, 8, 8), padded with zeros.
    """
    images = _padded(device, batches, -(-len(batches[0]) // EDGE), tiles)
    split = images.reshape(len(batches), -1, CHUNK, 2 * tiles, CHUNK).transpose(0, 3, 1, 2, 4)
    return _without_gaps(device, split)


def _padded(device: Device, batches: Sequence[Array], pairs: int, tiles: int) -> Array:
    """The batches as float16 (steps, 16 * pairs, 16 * tiles), with zeros after the last image and feature."""
    batch, inputs = batches[0].shape
    images = device.empty((len(batches), pairs * EDGE, tiles * EDGE), np.float16)
    images[...] = 0
    for own, pixels in zip(images, batches, strict=True):
        own[:batch, :inputs] = pixels
    return images


def _without_gaps(device: Device, view: Array) -> Array:
    whole = device.empty(view.shape, np.float16)
    whole[...] = view
    return whole
