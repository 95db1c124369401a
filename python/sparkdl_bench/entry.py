"""What `sparkdl-bench` starts: takes the signals over, then loads the command line, which takes most of a second."""

from __future__ import annotations

from sparkdl_bench import signals


def main() -> None:
    signals.install()
    try:
        from sparkdl_bench.cli import cli

        signals.loaded()
        cli(prog_name="sparkdl-bench")
    except BaseException:
        number = signals.number()
        if number is None:
            raise
        signals.say(signals.describe(number))
        signals.leave(128 + number)
