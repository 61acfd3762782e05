"""The engine: one training step, the recipe that fills it in, and the parts it is made of."""
