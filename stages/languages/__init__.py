"""The price of a language: parts of a rung written again, in Triton, for the same engine, graph and checks."""
