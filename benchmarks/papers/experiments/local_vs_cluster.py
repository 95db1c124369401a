"""Experiment d: NumPy and Keras on one machine against Keras on Spark and MLlib, with the paper's statistics."""

from __future__ import annotations

from collections.abc import Sequence

from papers import charts
from papers.beside import ACCURACY_POINTS, Beside, Estimate, centre, less, mean
from papers.charts import Curve
from papers.experiment import Experiment, Measured, Part, Story
from papers.experiments._groups import pick, training_seconds, values
from papers.page import table
from papers.published import Paper
from sparkdl_bench.report.analysis import ACCURACY, WAITED
from sparkdl_bench.report.numbers import number
from sparkdl_bench.report.vega import Plot
from sparkdl_bench.statistics import inference

_NUMPY, _KERAS, _SPARK = "NumPy from scratch, local", "Keras, local", "Keras on Spark"
_LBFGS, _GD, _OURS = "MLlib, l-bfgs", "MLlib, gd", "ours, in-band"
_OURS_LBFGS, _OURS_GD = "ours, l-bfgs by Spark jobs", "ours, gd by Spark jobs"
_LOCAL, _CLUSTER = (_NUMPY, _KERAS), (_SPARK, _LBFGS, _OURS_LBFGS, _GD, _OURS_GD, _OURS)
_WORKERS = (1, 2, 5, 7)
_SHARES = ("0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9")
_PART, _SHARE = "workers", "share"
_TRAINING = "Of the seconds of training alone: without starting, reading the rows and evaluating."


def _seconds(measured: Measured, variant: str, workers: int = 1) -> list[float]:
    """From the command to its end, a number a trial."""
    return values(pick(measured, _PART, variant, workers=workers), WAITED)


def _training(measured: Measured, variant: str, workers: int) -> list[float]:
    """Of these what more workers could make less, a number a trial: no start of Spark, no reading, no evaluation."""
    return values(pick(measured, _PART, variant, workers=workers), training_seconds)


def _story(paper: Paper, measured: Measured) -> Story:
    lines = [*_times(paper, measured), *_accuracies(paper, measured), *_scaling(paper, measured)]
    lines += _tests(paper, measured)
    return Story(lines, _plots(measured), _sentences(measured), _tables(measured))


def _times(paper: Paper, measured: Measured) -> list[Beside]:
    published = paper.numbers("seconds")
    pairs = {
        "from scratch, local": _NUMPY,
        "MLlib, l-bfgs": _LBFGS,
        "MLlib, gd": _GD,
        "Keras, local": _KERAS,
        "Keras on Spark, 1 worker": _SPARK,
    }
    note = "From the command to its end, 10 epochs or 100 iterations of MLlib; the paper does not state its numbers."
    return [
        Beside(f"Seconds: {name}", published.value(name), centre(_seconds(measured, variant)), "s", None, note)
        for name, variant in pairs.items()
    ]


def _accuracies(paper: Paper, measured: Measured) -> list[Beside]:
    published = paper.numbers("gd-accuracy")
    return [
        Beside(
            f"Test accuracy of MLlib with {solver}",
            published.value(solver),
            mean([100 * each for each in values(pick(measured, _PART, variant, workers=1), ACCURACY)]),
            "%",
            None,
            points=ACCURACY_POINTS,
        )
        for solver, variant in (("l-bfgs", _LBFGS), ("gd", _GD))
    ]


def _scaling(paper: Paper, measured: Measured) -> list[Beside]:
    published = paper.numbers("l-bfgs-scaling")
    return [
        Beside(
            f"Less time of MLlib with l-bfgs from {first} to {second} workers",
            published.value(f"{first} to {second} workers"),
            less(_training(measured, _LBFGS, first), _training(measured, _LBFGS, second)),
            "% less time",
            0.0,
            f"{_TRAINING}{' Workers beyond two share two cores here.' if second > 2 else ''}",
        )
        for first, second in ((1, 2), (2, 5), (5, 7))
    ]


def _tests(paper: Paper, measured: Measured) -> list[Beside]:
    published = paper.numbers("p-values")
    found = []
    welch = inference.welch(_seconds(measured, _KERAS), _seconds(measured, _SPARK))
    p = Estimate(welch.p, None, 2) if welch else None
    name = "t-test, Keras local and on Spark"
    found.append(Beside(name, published.value(name), p, "p", None, is_p=True))
    for label, variant in (("Keras", _SPARK), ("l-bfgs", _LBFGS), ("gd", _GD)):
        name = f"one-way ANOVA, {label} on 1, 2, 5 and 7 workers"
        groups = {str(each): found_in for each in _WORKERS if (found_in := _training(measured, variant, each))}
        rows = inference.one_way(groups, "workers") if len(groups) == len(_WORKERS) else None
        p = Estimate(rows[0].p, None, 2) if rows and rows[0].p is not None else None
        found.append(Beside(name, published.value(name), p, "p", None, _TRAINING, is_p=True))
    return found


def _plots(measured: Measured) -> list[Plot]:
    local = {each: _seconds(measured, each) for each in _LOCAL}
    cluster = {f"{each}, 1 worker": _seconds(measured, each) for each in _CLUSTER}
    made = [
        charts.boxes(
            "local-and-cluster", "One worker and one machine", {**local, **cluster}, "seconds from the command"
        )
    ]
    for variant in _CLUSTER:
        groups = {_counted(each): _training(measured, variant, each) for each in _WORKERS}
        name = f"workers-{'-'.join(variant.lower().replace(',', '').split())}"
        made.append(charts.boxes(name, f"{variant}, by workers", groups, "seconds of training"))
    for metric, name, label, factor in (
        (WAITED, "share-seconds", "seconds from the command", 1.0),
        (ACCURACY, "share-accuracy", "test accuracy, %", 100.0),
    ):
        lines = [Curve(each, _by_share(measured, each, metric, factor)) for each in (_LBFGS, _OURS)]
        made.append(
            charts.curves(
                name, f"{label[0].upper()}{label[1:]} by share of the rows", lines, "share of the rows, %", label
            )
        )
    return [plot for plot in made if plot]


def _by_share(measured: Measured, variant: str, metric: str, factor: float = 1.0) -> list[tuple[float, float]]:
    points = []
    for share in _SHARES:
        found = values(pick(measured, _SHARE, variant, share=share), metric)
        if found:
            points.append((100 * float(share), factor * sum(found) / len(found)))
    return points


def _sentences(measured: Measured) -> list[str]:
    found = []
    for metric, what, factor in ((WAITED, "seconds", 1.0), (ACCURACY, "% accuracy", 100.0)):
        points = _by_share(measured, _LBFGS, metric, factor)
        if len(points) > 1:
            told = ", ".join(f"{number(value)} at {share:g} %" for share, value in points)
            found.append(f"MLlib with l-bfgs by the share of the rows, {what}: {told}.")
    return found


def _tables(measured: Measured) -> list[tuple[str, str]]:
    rows = []
    for variant in _CLUSTER:
        groups = {_counted(each): found for each in _WORKERS if (found := _training(measured, variant, each))}
        rows += [
            [variant, f"{pair.first} and {pair.second}", number(pair.difference), _interval(pair), f"{pair.p:.3g}"]
            for pair in inference.tukey(groups) or ()
        ]
    if not rows:
        return []
    headings = ["", "workers", "seconds of training more with the second", "95 %", "p (Tukey's HSD)"]
    return [("Which numbers of workers differ", table(headings, rows))]


def _interval(pair: inference.TukeyPair) -> str:
    return f"{number(pair.interval.low)} to {number(pair.interval.high)}"


def _counted(workers: int) -> str:
    return f"{workers} worker{'' if workers == 1 else 's'}"


def _smallest(variants: Sequence[str] = ()) -> list[str]:
    only = [word for each in variants for word in ("--only", each)]
    return ["--trials", "2", "--set", "data.share=0.02", *only]


EXPERIMENT = Experiment(
    letter="d",
    folder="paper-d-local-vs-cluster",
    title="Local machines against a cluster",
    question="Does a cluster train a small net faster than one machine, and do more workers help?",
    parts=[
        Part(
            _PART,
            "784-100-50-10 by six ways on 1, 2, 5 and 7 workers",
            "d-local-vs-cluster",
            "mnist",
            smallest=_smallest(["workers=1", "workers=2"]),
        ),
        Part(
            _SHARE,
            "30 to 90 % of the training rows",
            "d-data-share",
            "mnist",
            smallest=[
                "--trials",
                "1",
                "--only",
                "data.share=0.3",
                "--only",
                "data.share=0.9",
                "--only",
                "variant=ours, in-band",
            ],
        ),
    ],
    scaled=[
        "Databricks' clusters of 8 to 32 cores are executors of one core on a machine of two: 5 and 7 workers share "
        "them, so that more workers cannot be faster here, and their rows show what more processes cost.",
        "The tanh after the last layer is left out: MLlib has a softmax there, and so have the nets here.",
        "MLlib's hidden layers are sigmoid, and the other nets' ReLU, as in the paper.",
        "Batches of 140, which 1, 2, 5 and 7 workers can share; the paper states none.",
        "Shares of the rows on 2 workers in place of 5.",
    ],
    story=_story,
)
