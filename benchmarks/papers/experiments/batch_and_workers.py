"""Experiment e: a CNN and ResNet-18 on MNIST over batches and workers: loss, accuracy, time, and where it tips."""

from __future__ import annotations

from itertools import pairwise

from papers import charts
from papers.beside import Beside, ratio
from papers.charts import Curve
from papers.experiment import Experiment, Measured, Part, Story
from papers.experiments._groups import phase_share, pick, values
from papers.page import epoch_seconds, table
from papers.published import Paper
from sparkdl_bench.report.analysis import ACCURACY, Group
from sparkdl_bench.report.numbers import number
from sparkdl_bench.report.vega import Plot

_BATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_WORKERS = (1, 2, 4)
_NETS = {"cnn": "CNN", "resnet-18": "ResNet-18"}
_SYNCHRONISING = ("encode", "send", "wait", "reduce", "decode")


def _story(paper: Paper, measured: Measured) -> Story:
    lines = []
    for part, net in _NETS.items():
        for batch in (32, 512, 8192):
            one, two = (values(pick(measured, part, batch=batch, workers=each), epoch_seconds) for each in (1, 2))
            lines.append(
                Beside(f"{net}, batch {batch:,}: an epoch on two workers over one on one", None, ratio(two, one))
            )
    return Story(lines, _plots(measured), _sentences(paper, measured), _tables(measured))


def _loss(group: Group) -> list[float]:
    found = [record["history"][-1]["test_loss"] for record in group.records if record["history"]]
    return [float(each) for each in found if each is not None]


def _percent(group: Group) -> list[float]:
    return [100 * each for each in group.values(ACCURACY)]


def _ratio_of(group: Group | None) -> float | None:
    """Synchronising over computing, of a step."""
    share, computing = phase_share(group, _SYNCHRONISING), phase_share(group, ("compute",))
    return share / computing if share is not None and computing else None


def _mean_by_batch(measured: Measured, part: str, workers: int, of: object) -> list[tuple[float, float]]:
    points = []
    for batch in _BATCHES:
        found = values(pick(measured, part, batch=batch, workers=workers), of)  # type: ignore[arg-type]
        if found:
            points.append((float(batch), sum(found) / len(found)))
    return points


def _plots(measured: Measured) -> list[Plot]:
    made = []
    for part, net in _NETS.items():
        for of, name, label in (
            (_loss, "loss", "test loss"),
            (_percent, "accuracy", "test accuracy, %"),
            (epoch_seconds, "seconds", "seconds an epoch"),
        ):
            lines = [Curve(_counted(each), _mean_by_batch(measured, part, each, of)) for each in _WORKERS]
            made.append(charts.curves(f"{part}-{name}", f"{net}: {label} by batch", lines, "batch", label, log_x=True))
        tips = []
        for workers in _WORKERS[1:]:
            found = [
                (float(b), r) for b in _BATCHES if (r := _ratio_of(pick(measured, part, batch=b, workers=workers)))
            ]
            tips.append(Curve(_counted(workers), found))
        title = f"{net}: synchronising over computing by batch"
        made.append(
            charts.curves(f"{part}-tips", title, tips, "batch", "synchronising over computing", log_x=True, log_y=True)
        )
    return [plot for plot in made if plot]


def _sentences(paper: Paper, measured: Measured) -> list[str]:
    claims = {each.id: each.what for each in paper.claim}
    found = []
    for part, net in _NETS.items():
        one, two = (dict(_mean_by_batch(measured, part, each, epoch_seconds)) for each in (1, 2))
        if both := sorted(one.keys() & two.keys()):
            pays = [f"{batch:,.0f}" for batch in both if two[batch] < one[batch]]
            told = f"with {len(pays)} of {len(both)} batches ({', '.join(pays)})" if pays else "with no batch"
            claim = claims["one-is-fastest"] if part == "cnn" else claims["resnet-devices"]
            found.append(f"{net}: two workers take less time for an epoch than one {told}. The paper: {claim}.")
        losses = _mean_by_batch(measured, part, 1, _loss)
        if len(losses) > 1:
            grows = all(later[1] >= earlier[1] for earlier, later in pairwise(losses))
            verdict = "grows with every larger batch" if grows else "does not grow with every larger batch"
            told = ", ".join(f"{number(value)} at {batch:,.0f}" for batch, value in losses)
            claim = claims["loss-grows-with-batch"] if part == "cnn" else claims["resnet-large-batch"]
            found.append(f"{net} on one worker: the test loss after one epoch {verdict}: {told}. The paper: {claim}.")
        ratios = {batch: _ratio_of(pick(measured, part, batch=batch, workers=2)) for batch in _BATCHES}
        known = {batch: ratio for batch, ratio in ratios.items() if ratio is not None}
        if known:
            computes = [f"{batch:,}" for batch, ratio in known.items() if ratio < 1]
            told = f"with batches of {', '.join(computes)}" if computes else "with no batch"
            found.append(f"{net} on two workers computes longer than it synchronises {told}. {claims['coordination']}.")
    return found


def _tables(measured: Measured) -> list[tuple[str, str]]:
    rows = []
    for part, net in _NETS.items():
        for batch in _BATCHES:
            for workers in _WORKERS:
                group = pick(measured, part, batch=batch, workers=workers)
                share = _ratio_of(group)
                if group is not None:
                    loss, percent, seconds = (values(group, of) for of in (_loss, _percent, epoch_seconds))
                    cells = [_shown(loss), _shown(percent), _shown(seconds), "–" if share is None else number(share)]
                    rows.append([net, f"{batch:,}", str(workers), *cells])
    if not rows:
        return []
    headings = ["net", "batch", "workers", "test loss", "accuracy, %", "s an epoch", "synchronising / computing"]
    return [("Loss, accuracy and time", table(headings, rows))]


def _shown(found: list[float]) -> str:
    return number(sum(found) / len(found)) if found else "–"


def _counted(workers: int) -> str:
    return f"{workers} worker{'' if workers == 1 else 's'}"


EXPERIMENT = Experiment(
    letter="e",
    folder="paper-e-batch-and-workers",
    title="Batches and workers",
    question="How do loss, accuracy and time depend on the batch and the workers, and where do more workers pay?",
    parts=[
        Part(
            "cnn",
            "Two convolutions and linear 800-500-10",
            "e-batch-and-workers",
            "mnist",
            smallest=[
                "--trials",
                "1",
                "--set",
                "data.share=0.05",
                "--only",
                "batch=128",
                "--only",
                "batch=512",
                "--only",
                "workers=1",
                "--only",
                "workers=2",
            ],
        ),
        Part(
            "resnet-18",
            "ResNet-18 on a fiftieth of the rows",
            "e-batch-and-workers",
            "mnist",
            "mnist-resnet-18",
            words=["--set", "data.share=0.02"],
            # Each run tests all 10,000 rows, which takes a minute or two.
            smallest=[
                "--trials",
                "1",
                "--set",
                "max_steps=3",
                "--only",
                "batch=128",
                "--only",
                "workers=1",
                "--only",
                "workers=2",
            ],
            full=[
                "--only",
                "batch=32",
                "--only",
                "batch=64",
                "--only",
                "batch=128",
                "--only",
                "batch=256",
                "--only",
                "batch=512",
                "--only",
                "batch=1024",
            ],
        ),
    ],
    scaled=[
        "1, 2, 4 and 8 GPUs are 1, 2 and 4 workers of one core on a machine of two; with four they share the cores.",
        "One epoch; the paper does not say how many it has.",
        "ResNet-18 on 1,200 of the 60,000 rows and with batches up to 1,024: two cores compute 60 of them a second.",
        "The seventh batch is 2,048, where the paper prints 2,024.",
    ],
    story=_story,
)
