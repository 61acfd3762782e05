"""Inside a stage's process: times the stage, and leaves its parameters for the verifier."""
