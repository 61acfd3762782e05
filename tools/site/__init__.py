"""The static site: documents and climb by MkDocs, a page for each recorded run and study, and the regimes."""
