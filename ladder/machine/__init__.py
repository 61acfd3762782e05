"""The machine: hardware, libraries, clocks, load, and the chip's limits."""
