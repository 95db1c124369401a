"""One driver on a host of the test: the all-reduces of CASES.json, in one session; results to OUT.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sparkdl_bench import session
from sparkdl_bench.errors import SparkDLError


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    _, settings = session.start_jvm(given["spark"])
    found: dict[str, object] = {}
    with session.open_session(settings) as spark:
        api = session.check_session(spark)
        for name, case in given["cases"].items():
            try:
                (found[name],) = api.net(case)
            except SparkDLError as error:
                found[name] = str(error)
    Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
