"""`python -m sparkdl_bench.bench SUITE [OPTIONS]`."""

from __future__ import annotations

import sys

from sparkdl_bench.entry import main

if __name__ == "__main__":
    # As the command line's own words, so that a signal ends it in the same way.
    sys.argv[1:1] = ["bench"]
    main()
