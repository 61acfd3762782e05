"""The explorer: a page on which one climbs the ladder of a run by clicking. One file, which requests nothing."""
