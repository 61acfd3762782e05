"""Markdown: reports, the README's tables."""
