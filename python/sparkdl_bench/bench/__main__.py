"""`python -m sparkdl_bench.bench SUITE [OPTIONS]`."""

from __future__ import annotations

import sys

from sparkdl_bench.cli import cli

if __name__ == "__main__":
    cli(["bench", *sys.argv[1:]])
