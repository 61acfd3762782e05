"""Renderings of one `results.json`: terminal, markdown, figures, README. Reads `ladder.records` and nothing else."""
