"""The static site: documents and climb by MkDocs, and a page for each recorded run and study."""
