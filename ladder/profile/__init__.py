"""What a stage does on the device, seen from outside, in epochs that are not timed."""
