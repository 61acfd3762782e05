"""Options of a run, from the command line or from TOML."""
