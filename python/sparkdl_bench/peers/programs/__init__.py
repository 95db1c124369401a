"""The peers' measuring programs. This folder is put on PYTHONPATH, so that `python -m measure.x` runs in a peer's own
environment without importing `sparkdl_bench` (whose dependencies are not there)."""
