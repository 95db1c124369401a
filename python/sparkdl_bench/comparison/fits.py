"""Asks the JVM whether a net can train on rows of a shape, before anybody writes it into a run file.

`python -m sparkdl_bench.comparison.fits QUESTION.json` runs in its own process, which starts a JVM without a Spark
context.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparkdl_bench import catalogue, helper_process, session
from sparkdl_bench.errors import ConfigurationError, SparkDLError


def check(settings: Mapping[str, str], shape: Sequence[int], classes: int) -> None:
    """Raises a ConfigurationError where no run could train this net on such rows; it names the nets that fit.

    Nothing is checked where there is no jar, as with keys and values.

    Args:
        settings: the `model` keys of the run.
        shape: of a row.
    """
    known = catalogue.load()
    if known is None:
        return
    others = [str(each["name"]) for each in known.variants["model"]]
    question = {"settings": dict(settings), "others": others, "shape": list(shape), "classes": classes}
    found = helper_process.ask("sparkdl_bench.comparison.fits", question, "net")
    if found["fault"]:
        rows = "×".join(map(str, shape))
        raise ConfigurationError(
            f"The net '{settings['model.name']}' does not fit rows of {rows}. {found['fault']} Nets that fit these "
            f"rows: {', '.join(found['fitting'])}."
        )


def _answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """`fault`: what is wrong with the net, empty where nothing is; `fitting`: where something is, the nets that fit."""
    with tempfile.TemporaryFile() as log:
        try:
            api, _ = session.start_jvm({"spark.master": "local"}, log, natives=False)
        except ConfigurationError:
            return {"fault": ""}  # an installation that cannot run anything is for `run` and `doctor` to name

        def fault(settings: Mapping[str, str]) -> str:
            try:
                api.model(settings, question["shape"], question["classes"])
            except SparkDLError as error:
                return str(error)
            return ""

        said = fault(question["settings"])
        fitting = [name for name in question["others"] if said and not fault({"model.name": name})]
    return {"fault": said, "fitting": fitting}


if __name__ == "__main__":
    print(json.dumps(_answer(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
