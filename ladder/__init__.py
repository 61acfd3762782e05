"""The harness: owns the clock, the fence, the gates and the results. Knows the Trainer protocol, not how one trains."""
