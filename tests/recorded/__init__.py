"""What the recorded runs show, recomputed from their files."""
