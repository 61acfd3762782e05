"""Writers: lay the blocks of any screen out for a terminal, in Markdown, as a page, or for other programs."""
