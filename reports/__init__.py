"""Renderings of `results.json`: terminal, markdown, figures, README. They import `ladder.records` and no other room."""
