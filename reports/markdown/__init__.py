"""Documents of the recorded runs in Markdown: README's tables, the climb."""
