"""`python -m sparkdl_bench` is `sparkdl-bench`."""

from sparkdl_bench.cli import cli

if __name__ == "__main__":
    cli(prog_name="sparkdl-bench")
