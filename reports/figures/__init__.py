"""Figures, as SVG."""
