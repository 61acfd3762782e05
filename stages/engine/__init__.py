"""The engine: one training step, and the recipe that supplies its parts."""
