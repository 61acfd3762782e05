"""Inside a stage's process: time it, and leave its parameters for the verifier."""
