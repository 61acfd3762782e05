"""Own matrix products for small shapes, in float32 and on tensor cores."""
