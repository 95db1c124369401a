"""Experiment c: the four systems' ways to synchronise, accuracy against seconds and iterations on MNIST."""

from __future__ import annotations

from papers import charts
from papers.beside import ACCURACY_POINTS, Beside, Estimate, mean, ratio
from papers.charts import Curve
from papers.experiment import Experiment, Measured, Part, Story
from papers.experiments._groups import pick, values
from papers.published import Paper, Value
from sparkdl_bench.report.analysis import ACCURACY, TOTAL, Group
from sparkdl_bench.report.vega import Plot

_PART = "mnist"
_CAFFE, _SPARKNET = "peer to peer (CaffeOnSpark)", "50 iterations, then average (SparkNet)"
_DL4J, _DOWNPOUR = "average every 5 batches (DL4J)", "Downpour (Arimo)"
# Ours, and of which system of the paper it takes the place.
_SYSTEMS = {_CAFFE: "caffeonspark", _SPARKNET: "sparknet", _DL4J: "dl4j", _DOWNPOUR: "tensorflow"}
_LAST = "4"


def _story(paper: Paper, measured: Measured) -> Story:
    lines = []
    for variant, system in _SYSTEMS.items():
        theirs = paper.numbers(f"{system}-accuracy").value(_LAST)
        accuracy = mean([100 * each for each in values(pick(measured, _PART, variant), ACCURACY)])
        lines.append(Beside(f"Accuracy at the end: {variant}", theirs, accuracy, "%", None, points=ACCURACY_POINTS))
    for variant, system in list(_SYSTEMS.items())[1:]:
        other, first = pick(measured, _PART, variant), pick(measured, _PART, _CAFFE)
        slower = ratio(values(other, _per_iteration), values(first, _per_iteration))
        label = f"Seconds an iteration or epoch of {variant}, over those of {_CAFFE}"
        pace = _published_ratio(paper) if system == "sparknet" else None  # the others count epochs
        lines.append(Beside(label, pace, slower, note=_published_pace(paper, system)))
    behind = _behind(measured)
    lines.append(
        Beside("Points of accuracy that SparkNet's way is behind the peer-to-peer way", None, behind, "points", 0.0)
    )
    return Story(lines, _plots(paper, measured), _sentences(paper, measured))


def _behind(measured: Measured) -> Estimate | None:
    first, second = (mean(values(pick(measured, _PART, each), ACCURACY)) for each in (_CAFFE, _SPARKNET))
    return Estimate(100 * (first.value - second.value), None, first.trials) if first and second else None


def _per_iteration(group: Group) -> list[float]:
    """Seconds of training for each iteration, a number a trial."""
    return [float(record["metrics"][TOTAL]) / max(1, len(record["steps_ms"])) for record in group.records]


def _published_ratio(paper: Paper) -> Value:
    """SparkNet's seconds an iteration over CaffeOnSpark's, from the last columns of their tables."""
    slow, slow_count = _published_last(paper, "sparknet", "seconds"), _published_last(paper, "sparknet", "iterations")
    fast, fast_count = (_published_last(paper, "caffeonspark", each) for each in ("seconds", "iterations"))
    text = f"{slow:g} s / {slow_count:g} over {fast:g} s / {fast_count:g}"
    return Value("SparkNet over CaffeOnSpark", round(slow / slow_count / (fast / fast_count), 2), text)


def _published_last(paper: Paper, system: str, what: str) -> float:
    """The last column of a row of a system's table."""
    return paper.numbers(f"{system}-{what}").value(_LAST).value


def _published_pace(paper: Paper, system: str) -> str:
    """What the paper's table says of it, by the iteration or the epoch."""
    seconds = _published_last(paper, system, "seconds")
    counted = "iterations" if system in ("caffeonspark", "sparknet") else "epochs"
    count = _published_last(paper, system, counted)
    return f"In the paper {seconds / count:.3g} s {'an iteration' if counted == 'iterations' else 'an epoch'}."


def _plots(paper: Paper, measured: Measured) -> list[Plot]:
    theirs = [Curve(f"{system}, the paper", _published_curve(paper, system), True) for system in _SYSTEMS.values()]
    by_seconds = [Curve(variant, _curve(pick(measured, _PART, variant), "seconds")) for variant in _SYSTEMS]
    by_iterations = [Curve(variant, _curve(pick(measured, _PART, variant), "iterations")) for variant in _SYSTEMS]
    published_iterations = [
        Curve(f"{system}, the paper", _published_curve(paper, system, "iterations"), True)
        for system in ("caffeonspark", "sparknet")
    ]
    made = (
        charts.curves(
            "accuracy-seconds",
            "Accuracy over seconds",
            [*theirs, *by_seconds],
            "seconds",
            "test accuracy, %",
            log_x=True,
        ),
        charts.curves(
            "accuracy-iterations",
            "Accuracy over iterations",
            [*published_iterations, *by_iterations],
            "iterations",
            "test accuracy, %",
            log_x=True,
        ),
    )
    return [plot for plot in made if plot]


def _published_curve(paper: Paper, system: str, over: str = "seconds") -> list[tuple[float, float]]:
    x, y = paper.numbers(f"{system}-{over}"), paper.numbers(f"{system}-accuracy")
    return [(x.value(each.of).value, each.value) for each in y.values]


def _curve(group: Group | None, over: str) -> list[tuple[float, float]]:
    """Every evaluation of the trial in the middle."""
    if group is None:
        return []
    record = group.typical
    history = [each for each in record["history"] if each["accuracy"] is not None]
    steps = len(record["steps_ms"]) / max(1, len(record["history"]))
    return [
        (float(each["seconds"]) if over == "seconds" else steps * place, 100 * float(each["accuracy"]))
        for place, each in enumerate(history, start=1)
    ]


def _sentences(paper: Paper, measured: Measured) -> list[str]:
    ours = {each: mean(values(pick(measured, _PART, each), ACCURACY)) for each in _SYSTEMS}
    if any(value is None for value in ours.values()):
        return []
    order = sorted(ours, key=lambda each: -(ours[each].value if ours[each] else 0.0))  # type: ignore[union-attr]
    theirs = sorted(_SYSTEMS, key=lambda each: -paper.numbers(f"{_SYSTEMS[each]}-accuracy").value(_LAST).value)
    same = "the same order as" if order == theirs else "another order than"
    spread = max(each.value for each in ours.values() if each) - min(each.value for each in ours.values() if each)
    published = [paper.numbers(f"{system}-accuracy").value(_LAST).value for system in _SYSTEMS.values()]
    return [
        f"By the accuracy at the end the ways are, best first: {'; '.join(order)}. That is {same} in the paper, and "
        f"{100 * spread:.2f} points apart, where the paper's are {max(published) - min(published):g} apart: there "
        "each system has its own net and "
        "learning rate, here all train the same net from the same weights, so only the synchronisation differs."
    ]


EXPERIMENT = Experiment(
    letter="c",
    folder="paper-c-four-ways",
    title="Four ways to synchronise, on MNIST",
    question="How do accuracy and time depend on when workers exchange, and what?",
    parts=[
        Part(
            _PART,
            "LeNet on MNIST, batch 64",
            "c-four-ways",
            "mnist",
            smallest=["--trials", "1", "--set", "epochs=2", "--set", "data.share=0.05"],
        )
    ],
    scaled=[
        "Five workers of eight cores are two of one core, and no other number of workers is measured.",
        "SparkNet, Arimo's TensorFlow on Spark and CaffeOnSpark are not among the peers. DL4J is, and trains "
        "perceptrons alone there, not Caffe's LeNet. So each system's way to synchronise is an algorithm of ours over "
        "TCP, with the same net and rows.",
        "Ten epochs, 9,380 iterations; the paper has 10,000 iterations or 20 epochs.",
    ],
    story=_story,
)
