"""One file an experiment, each with its `EXPERIMENT`; found by scanning."""
