"""An experiment: what is compared in its stead here, with which words, and how its page is made."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkdl_bench.errors import ConfigurationError

if TYPE_CHECKING:
    from papers.beside import Beside
    from papers.published import Paper
    from sparkdl_bench.report.analysis import Analysis
    from sparkdl_bench.report.vega import Plot

SMALLEST, FULL = "smallest", "full"
SIZES = (SMALLEST, FULL)
ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "conf" / "runs"


@dataclass(frozen=True)
class Part:
    """One comparison of an experiment, as `sparkdl-bench compare` takes it.

    Attributes:
        name: of its records; different within the experiment.
        what: in a few words, for people.
        file: below conf/runs/papers.
        data: folder of a set below that of all sets, such as `mnist`; empty where the rows are made.
        base: a run file of conf/runs in place of the file's own.
        words: further words of every size.
        smallest, full: further words of that size.
        lab: what `sparkdl-bench lab up NAME` is told, for a part that needs hosts of its own; empty: none. Its name is
            the part's.
        decodes: whether its source decodes its rows, for which the hosts of a lab need a folder that they share.
        busy: whether a second Spark job takes all cores meanwhile.
    """

    name: str
    what: str
    file: str
    data: str = ""
    base: str = ""
    words: Sequence[str] = ()
    smallest: Sequence[str] = ()
    full: Sequence[str] = ()
    lab: Sequence[str] = ()
    decodes: bool = False
    busy: bool = False

    def command(self, size: str, folder: str, decoded: str) -> list[str]:
        """The words after `sparkdl-bench`, without where results go.

        Args:
            folder: of the sets; the words of a page have `DATA` there.
            decoded: a folder for decoded rows, `DECODED` on a page.
        """
        base = ["--base", f"conf/runs/{self.base}.toml"] if self.base else []
        # The hosts of a lab see the disk of this machine, whatever Hadoop's default file system is there.
        disk = "file:" if self.lab else ""
        rows = ["--set", f"data.path={disk}{folder}/{self.data}"] if self.data else []
        rows += ["--set", f"data.cache_dir={disk}{decoded}"] if self.lab and self.decodes else []
        master = ["--master", f"lab:{self.lab_name}"] if self.lab else []
        own = {SMALLEST: self.smallest, FULL: self.full}[size]
        return ["compare", f"conf/runs/papers/{self.file}.toml", *base, *rows, *master, *self.words, *own]

    @property
    def lab_name(self) -> str:
        return self.name


@dataclass(frozen=True)
class Job:
    """A command of its own that an experiment times, such as a pass over all pixels.

    Attributes:
        words: after `sparkdl-bench`; `{data}` is the folder of the sets.
        data: folder of a set below that of all sets.
        shown: what of its output is kept: lines that begin so.
    """

    name: str
    what: str
    words: Sequence[str]
    data: str = ""
    shown: Sequence[str] = ()


@dataclass(frozen=True)
class Measured:
    """What there is of an experiment.

    Attributes:
        analyses: by the part's name; parts that are not measured are not in it.
        jobs: by the job's name, each run's facts: `seconds`, and the lines that are shown, as `said`.
        absent: parts and jobs that are not measured, and why.
        size: one of SIZES.
    """

    analyses: Mapping[str, Analysis]
    jobs: Mapping[str, Sequence[Mapping[str, Any]]]
    absent: Mapping[str, str]
    size: str


@dataclass(frozen=True)
class Story:
    """What a page says beside its tables.

    Attributes:
        beside: the paper's numbers with ours, in the order in which they are shown.
        plots: pictures beyond the one of `beside`.
        sentences: what else was found, a paragraph each.
        tables: Markdown tables with a heading each.
    """

    beside: Sequence[Beside]
    plots: Sequence[Plot] = ()
    sentences: Sequence[str] = ()
    tables: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Experiment:
    """One published comparison, scaled to what a small machine can do.

    Attributes:
        letter: of the paper in docs/papers.
        folder: below docs/results.
        question: that it answers, a sentence.
        scaled: what is smaller or other than in the paper, and why.
        story: from what was measured.
    """

    letter: str
    folder: str
    title: str
    question: str
    parts: Sequence[Part]
    scaled: Sequence[str]
    story: Callable[[Paper, Measured], Story]
    jobs: Sequence[Job] = field(default=())

    @property
    def pieces(self) -> list[Part | Job]:
        """All that is measured, in its order."""
        return [*self.parts, *self.jobs]


def find() -> dict[str, Experiment]:
    """Every experiment of papers/experiments, by its letter: a file each, with its `EXPERIMENT`."""
    from papers import experiments

    found: dict[str, Experiment] = {}
    for module in pkgutil.iter_modules(experiments.__path__):
        if not module.name.startswith("_"):
            each: Experiment = importlib.import_module(f"{experiments.__name__}.{module.name}").EXPERIMENT
            if each.letter in found:
                raise ConfigurationError(f"Two files of papers/experiments are experiment {each.letter}.")
            found[each.letter] = each
    return dict(sorted(found.items()))
