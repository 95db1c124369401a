"""`python -m sparkdl_bench` is `sparkdl-bench`."""

from sparkdl_bench.entry import main

if __name__ == "__main__":
    main()
