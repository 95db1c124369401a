"""Runs a command on the first of two hosts made of network namespaces, with a standalone Spark cluster across them.

    .venv/bin/python project/two_hosts.py [--megabits N] -- COMMAND ...

In the command's words, `{master}` becomes the cluster's address; the driver's properties follow as `--set KEY=VALUE`.
Each host's worker is bound to a processor core of its own; the driver may use all. Needs Linux and root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sparkdl_bench.bench import namespaces
from sparkdl_bench.errors import SparkDLError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabits", type=int, default=1000, help="of the link, per second (default 1000)")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sparkdl-hosts-") as folder,
            namespaces.two_hosts(arguments.megabits) as hosts,
            namespaces.cluster(hosts, Path(folder), cores=sorted(os.sched_getaffinity(0))) as properties,
        ):
            master = properties.pop("spark.master")
            words = [word.replace("{master}", master) for word in arguments.command]
            settings = [word for pair in properties.items() for word in ("--set", "=".join(pair))]
            command = hosts[0].command(*words, *settings)
            return subprocess.run(  # noqa: S603 (the user's own command)
                command, env=namespaces.environment(hosts[0]), check=False
            ).returncode
    except SparkDLError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
