"""Renderings of one `results.json`: terminal, markdown, figures, README. Reads `ladder.results` and nothing else."""
