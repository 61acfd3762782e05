"""Wide layers: weights copied ahead of the products that use them."""
