"""Models as people write them who have read no more than `--help`, an example and docs/your-model.md."""
