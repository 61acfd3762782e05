"""Large batches: float16 halves in memory, and few kernels a step."""
