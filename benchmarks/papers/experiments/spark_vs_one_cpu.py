"""Experiment a: MLlib's perceptron on Spark against one CPU of PyTorch, and the same while another job runs."""

from __future__ import annotations

from papers import charts
from papers.beside import Beside, ratio
from papers.charts import Curve
from papers.experiment import Experiment, Job, Measured, Part, Story
from papers.experiments._groups import pick, values
from papers.page import epoch_seconds
from papers.published import Paper, Value
from sparkdl_bench.comparison.plan import VARIANT
from sparkdl_bench.report.analysis import Group
from sparkdl_bench.report.numbers import number
from sparkdl_bench.report.vega import Plot

_MLLIB, _GD, _ONE, _OURS = "MLlib, L-BFGS", "MLlib, gradient descent", "PyTorch, one process", "ours, in-band"
_SETS = {"mnist": "MNIST", "cifar-10": "CIFAR-10"}
_PLACES = ((1, 1), (1, 2), (2, 1))
_SMALLEST = ("--trials", "1", "--set", "data.share=0.02", "--only", "workers=1", "--only", "engine.threads=1")


def _slowdown(measured: Measured, part: str, label: str, variant: str, theirs: Value | None = None) -> Beside:
    """Seconds an epoch over those of one process of PyTorch with two threads (the paper's CPU has two cores).

    Where these two are not measured, those that are stand there; the label says which.
    """
    spark, one = _group(measured, part, variant), _group(measured, part, _ONE)
    return _over(label, theirs, spark, one)


def _group(measured: Measured, part: str, variant: str) -> Group | None:
    """On two cores, or where that is not measured whatever is."""
    wanted = {"threads": 2} if variant == _ONE else {"workers": 2, "threads": 1}
    return pick(measured, part, variant, **wanted) or pick(measured, part, variant)


def _over(label: str, theirs: Value | None, group: Group | None, other: Group | None) -> Beside:
    places = f" ({_placed(group)} over {_placed(other)})" if group and other else ""
    found = ratio(values(group, epoch_seconds), values(other, epoch_seconds))
    return Beside(f"{label}{places}", theirs, found)


def _placed(group: Group) -> str:
    """`2 workers of 1 thread`."""
    workers, threads = group.workers, group.threads
    return f"{workers} worker{'' if workers == 1 else 's'} of {threads} thread{'' if threads == 1 else 's'}"


def _busy(measured: Measured, variant: str) -> Beside:
    """The same workers and threads in both parts."""
    label = f"MNIST: seconds an epoch of {variant} while a second Spark job runs, over those alone"
    idle = _group(measured, "mnist", variant)
    factors = idle.factors if idle else {}
    places = {key.rpartition(".")[2]: value for key, value in factors.items() if key != VARIANT}
    return _over(label, None, pick(measured, "mnist-busy", variant, **places), idle)


def _story(paper: Paper, measured: Measured) -> Story:
    published = paper.numbers("slowdown")
    lines = [
        _slowdown(measured, part, f"{name}: MLlib's seconds an epoch over PyTorch's", _MLLIB, published.value(name))
        for part, name in _SETS.items()
    ]
    for part, name in _SETS.items():
        lines.append(_slowdown(measured, part, f"{name}: the same with MLlib's gradient descent", _GD))
        lines.append(_slowdown(measured, part, f"{name}: the same of ours, in-band", _OURS))
    lines += [_busy(measured, variant) for variant in (_MLLIB, _ONE, _OURS)]
    both = "MNIST: MLlib over PyTorch, both while a second Spark job runs"
    lines.append(_slowdown(measured, "mnist-busy", both, _MLLIB))
    return Story(lines, _plots(measured), _sentences(measured))


def _plots(measured: Measured) -> list[Plot]:
    found = []
    for part, name in _SETS.items():
        analysis = measured.analyses.get(part)
        if analysis is None:
            continue
        groups = {group.name: epoch_seconds(group) for group in analysis.groups if group.records}
        plot = charts.boxes(f"epoch-{part}", f"{name}: seconds an epoch", groups, "seconds an epoch")
        found += [plot] if plot else []
        lines = [Curve(variant, _by_cores(measured, part, variant)) for variant in (_MLLIB, _GD, _OURS)]
        cores = charts.curves(f"cores-{part}", f"{name}: more executors and cores", lines, "cores", "seconds an epoch")
        found += [cores] if cores else []
    return found


def _by_cores(measured: Measured, part: str, variant: str) -> list[tuple[float, float]]:
    """Seconds an epoch by cores; of one executor of two cores and two of one the quicker."""
    best: dict[int, float] = {}
    for workers, threads in _PLACES:
        found = values(pick(measured, part, variant, workers=workers, threads=threads), epoch_seconds)
        if found:
            cores = workers * threads
            best[cores] = min(best.get(cores, float("inf")), sum(found) / len(found))
    return sorted((float(cores), seconds) for cores, seconds in best.items())


def _sentences(measured: Measured) -> list[str]:
    found = []
    for part, name in _SETS.items():
        points = dict(_by_cores(measured, part, _MLLIB))
        if {1.0, 2.0} <= set(points):
            helps = points[2.0] < 0.95 * points[1.0]
            said = "helped" if part == "mnist" else "did not help"
            found.append(
                f"{name}: with two cores in place of one an epoch of MLlib takes {number(points[2.0])} s in place of "
                f"{number(points[1.0])}, so more cores {'help' if helps else 'do not help'}; in the paper they {said}."
            )
    for run in measured.jobs.get("pixels", ())[-1:]:
        same = "as" if any("from 0 to 255" in line for line in run["said"]) else "other than"
        found.append(
            f"The pass over all pixels of CIFAR-10 for minima and maxima, a Spark job of its own, took "
            f"{number(float(run['seconds']))} s from the command to its end. What it found is {same} in the paper, "
            "where they go from 0 to 255."
        )
    return found


EXPERIMENT = Experiment(
    letter="a",
    folder="paper-a-spark-vs-one-cpu",
    title="Spark against one CPU",
    question="How much slower is an epoch of MLlib's perceptron on Spark than one of PyTorch in one process?",
    parts=[
        Part("mnist", "MNIST, 784-1024-10", "a-spark-vs-one-cpu", "mnist", smallest=_SMALLEST),
        Part(
            "cifar-10",
            "CIFAR-10, 3072-1024-10",
            "a-spark-vs-one-cpu",
            "cifar-10",
            "cifar10-mlp",
            words=["--set", "data.source=cifar10"],
            smallest=_SMALLEST,
        ),
        Part(
            "mnist-busy",
            "MNIST, 784-1024-10, while a second Spark job takes all cores",
            "a-spark-vs-one-cpu",
            "mnist",
            smallest=_SMALLEST,
            busy=True,
        ),
    ],
    jobs=[
        Job(
            "pixels",
            "Minima and maxima of all pixels of CIFAR-10, a Spark job of its own",
            ["data", "stats", "conf/runs/cifar10-mlp.toml", "--set", "data.path={data}/cifar-10"],
            "cifar-10",
            ["3072 values per row", "train:"],
        )
    ],
    scaled=[
        "The cluster of 48 nodes is two cores of one machine, so no row crosses a network: what MLlib loses here it "
        "loses to its own arithmetic and to Spark's scheduling, where the paper suspects communication.",
        "The rows come from the sets' own binary files in place of CSV on HDFS; they are read before an epoch's clock "
        "starts, on both sides.",
        "One and two executors of one core, and one of two cores. More would share the two cores.",
        "No GPU.",
    ],
    story=_story,
)
