"""The harness: clock, fence, gates and results. It knows the Trainer protocol, but not how a stage trains."""
