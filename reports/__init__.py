"""Renderings of `results.json`: terminal, markdown, figures, README. They import only `ladder.records`."""
