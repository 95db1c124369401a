"""An experiment's folder below docs/results: its page, its pictures, and the records of which both are made again.

page.md          the page
*.png            its pictures
page.json        size, machine and commit of each part, jobs, what is absent and why
PART.json.gz     the records of a part, as kept reports have them
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papers import measuring, page
from papers.experiment import Experiment, Measured
from papers.published import Paper
from sparkdl_bench.files import load_json, replace_text, replacing
from sparkdl_bench.report import kept, vega
from sparkdl_bench.report.load import Comparison

PAGE, FACTS = "page.md", "page.json"
_SCHEMA = 1
_ENDING = ".json.gz"


def keep(folder: Path, measured: Measured, comparisons: Mapping[str, Comparison]) -> None:
    """Writes the records; of the same size those of other parts and jobs stay, which were measured elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    before = _facts(folder) if (folder / FACTS).is_file() else {}
    if before and before["size"] != measured.size:
        before = {}
        for file in folder.glob(f"*{_ENDING}"):
            file.unlink()
    for name, comparison in comparisons.items():
        kept.write(folder / f"{name}{_ENDING}", [comparison.kept], [])
    jobs = {**before.get("jobs", {}), **measured.jobs}
    there = {file.name.removesuffix(_ENDING) for file in folder.glob(f"*{_ENDING}")} | jobs.keys()
    absent = {name: why for name, why in {**before.get("absent", {}), **measured.absent}.items() if name not in there}
    facts = {"schema": _SCHEMA, "size": measured.size, "jobs": jobs, "absent": absent}
    replace_text(folder / FACTS, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def read(folder: Path) -> tuple[Measured, dict[str, Comparison]]:
    """What `keep` has written."""
    facts = _facts(folder)
    comparisons = {}
    for file in sorted(folder.glob(f"*{_ENDING}")):
        [found] = kept.read(file)["comparisons"]
        name = file.name.removesuffix(_ENDING)
        comparisons[name] = Comparison(found["content"], found["records"], found["asked"])
    return measuring.of(comparisons, facts["jobs"], facts["absent"], facts["size"]), comparisons


def _facts(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = load_json(folder / FACTS, _SCHEMA, {}, "the facts of an experiment's page")
    return found


def write_page(folder: Path, experiment: Experiment, paper: Paper) -> Path:
    """The page and its pictures of the records that lie there; older pictures are removed."""
    measured, _ = read(folder)
    made = page.make(experiment, paper, measured)
    for file in folder.glob("*.png"):
        file.unlink()
    for plot in made.plots:
        with replacing(folder / f"{plot.name}.png") as partial:
            partial.write_bytes(vega.png(plot))
    replace_text(folder / PAGE, made.text)
    return folder / PAGE
