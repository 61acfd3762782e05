"""Screens: what a reader is told, as blocks of headings, sentences, tables and figures; writers lay them out."""
