"""Images and labels: IDX files, downloads, synthetic digits."""
