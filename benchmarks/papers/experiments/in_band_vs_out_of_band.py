"""Experiment b: in-band against out-of-band, BLAS, networks, workers, the layers of a training, images a second."""

from __future__ import annotations

from papers import charts
from papers.beside import Beside, Estimate, less, more, not_measured, ratio
from papers.charts import Curve
from papers.experiment import Experiment, Measured, Part, Story
from papers.experiments._groups import layer_share, phase_share, pick, values
from papers.page import epoch_seconds, table
from papers.published import Paper
from sparkdl_bench.report.analysis import RATE, STEP, WAITED_TO_ACCURACY
from sparkdl_bench.report.numbers import counted, number
from sparkdl_bench.report.vega import Plot

_JOBS, _IN = "BigDL's way: jobs per step", "in-band, one job"
_OUT, _PS = "out-of-band, sliced (CaffeOnSpark)", "out-of-band, parameter server (TensorFlowOnSpark)"
_WAYS = (_JOBS, _IN, _OUT, _PS)
_SLOW, _FAST = "network-1gbit", "network-10gbit"
_SYNCHRONISING = ("encode", "send", "wait", "reduce", "decode", "scheduler")
_SPARK_LAYERS = ("task launch", "serialisation", "job submission", "Spark scheduling", "start")
_HOSTS = ("--hosts", "2", "--memory", "4g")
_SMALLEST = ("--trials", "1")
_IMAGES = {"images-resnet-50": "ResNet-50", "images-alexnet": "AlexNet", "images-googlenet": "GoogLeNet"}


def _story(paper: Paper, measured: Measured) -> Story:
    lines = [*_blas(paper, measured), *_network(paper, measured), *_workers(paper, measured), *_layers(paper, measured)]
    return Story(
        [*lines, *not_measured(paper, lines)],
        _plots(measured),
        _sentences(measured),
        _tables(measured),
    )


def _blas(paper: Paper, measured: Measured) -> list[Beside]:
    published = paper.numbers("blas")
    found = []
    for part, name in (("blas-lenet", "LeNet"), ("blas-quick", "CIFAR-10 Quick")):
        openblas, mkl = (values(pick(measured, part, blas=each), STEP) for each in ("openblas", "mkl"))
        note = "Read as less time; the paper does not say whether its percentages are of the time or of the speed."
        label = f"{name}: less time by MKL than by OpenBLAS (the paper's may be of the speed)"
        found.append(Beside(label, published.value(name), less(openblas, mkl), "% less time", 0.0, note))
    return found


def _speed_up(measured: Measured, way: str) -> Estimate | None:
    """A step's time on the slow network over that on the fast one."""
    return ratio(values(pick(measured, _SLOW, way), STEP), values(pick(measured, _FAST, way), STEP))


def _network(paper: Paper, measured: Measured) -> list[Beside]:
    published = paper.numbers("vgg-epoch").value("epoch 18")
    note = "1 and 10 Gbit/s TCP here; in the paper IPoIB and RDMA on InfiniBand."
    found = [
        Beside(
            "VGG-16 with jobs per step: the slow network's time over the fast one's",
            published,
            _speed_up(measured, _JOBS),
            note=note,
        )
    ]
    found += [
        Beside(f"VGG-16, {way}: the slow network's time over the fast one's", None, _speed_up(measured, way))
        for way in _WAYS[1:]
    ]
    for part, name in ((_SLOW, "1 Gbit/s"), (_FAST, "10 Gbit/s")):
        slower = ratio(values(pick(measured, part, _JOBS), STEP), values(pick(measured, part, _IN), STEP))
        found.append(Beside(f"VGG-16 on {name}: a step with jobs per step over one in-band in one job", None, slower))
    servers = more(
        values(pick(measured, "images-resnet-50", "parameter server"), RATE),
        values(pick(measured, "images-resnet-50", "all-reduce"), RATE),
    )
    found.append(
        Beside(
            "ResNet-50: more images a second by all-reduce than with a parameter server",
            None,
            servers,
            "% more images/s",
            0.0,
        )
    )
    return found


def _workers(paper: Paper, measured: Measured) -> list[Beside]:
    published = paper.numbers("one-to-16-lenet").value("MKL")
    one, two = (values(pick(measured, "workers", "out-of-band", workers=each), epoch_seconds) for each in (1, 2))
    note = "16 nodes in the paper, 2 workers here: no more than 2 is possible."
    return [
        Beside("LeNet: time of one node over that of several, out-of-band", published, ratio(one, two), note=note),
        Beside(
            "LeNet: time of one worker over that of two, in-band",
            None,
            ratio(*(values(pick(measured, "workers", "in-band", workers=each), epoch_seconds) for each in (1, 2))),
        ),
    ]


def _layers(paper: Paper, measured: Measured) -> list[Beside]:
    published = paper.numbers("layers")
    ours = pick(measured, "layers-yarn", "ours, in-band")
    shares = {"YARN": layer_share(ours, ["cluster manager"]), "Spark": layer_share(ours, _SPARK_LAYERS)}
    note = "Of ours; TensorFlowOnSpark here has Spark's local cluster, so YARN is no part of it."
    return [
        Beside(
            f"Softmax on MNIST, share of the whole time: {name}",
            published.value(name),
            None if share is None or ours is None else Estimate(100 * share, None, len(ours.records)),
            "% of the time",
            None,
            note,
        )
        for name, share in shares.items()
    ]


def _plots(measured: Measured) -> list[Plot]:
    lines = []
    for variant in ("in-band", "out-of-band"):
        points = []
        for workers in (1, 2, 4):
            found = values(pick(measured, "workers", variant, workers=workers), epoch_seconds)
            if found:
                points.append((float(workers), sum(found) / len(found)))
        lines.append(Curve(variant, points))
    scaling = charts.curves("workers", "LeNet, workers times batch is 128", lines, "workers", "seconds an epoch")
    networks = {
        f"{name}, {way}": values(pick(measured, part, way), STEP)
        for part, name in ((_SLOW, "1 Gbit/s"), (_FAST, "10 Gbit/s"))
        for way in _WAYS
    }
    boxes = charts.boxes("network", "VGG-16: a step by network and way", networks, "milliseconds per step")
    return [plot for plot in (scaling, boxes) if plot]


def _sentences(measured: Measured) -> list[str]:
    found = []
    times = {
        f"{variant}, {counted(workers, 'worker')}": values(
            pick(measured, "workers", variant, workers=workers), WAITED_TO_ACCURACY
        )
        for variant in ("in-band", "out-of-band")
        for workers in (1, 2, 4)
    }
    told = [f"{name} {number(sum(each) / len(each))} s" for name, each in times.items() if each]
    if told:
        found.append(f"LeNet to 70 % from the command, the first evaluation after an epoch: {'; '.join(told)}.")
    return found


def _tables(measured: Measured) -> list[tuple[str, str]]:
    split = [
        [
            way,
            name,
            *(_percent(phase_share(group, names)) for names in (("compute",), _SYNCHRONISING, ("data", "update"))),
        ]
        for part, name in ((_SLOW, "1 Gbit/s"), (_FAST, "10 Gbit/s"))
        for way in _WAYS
        if (group := pick(measured, part, way)) is not None
    ]
    images = [
        [net, way, ", ".join(number(each) for each in found)]
        for part, net in _IMAGES.items()
        for way in ("all-reduce", "parameter server")
        if (found := values(pick(measured, part, way), RATE))
    ]
    layers = []
    for part, place in (("layers-yarn", "YARN in a lab"), ("layers-local", "this machine")):
        for group in measured.analyses[part].groups if part in measured.analyses else ():
            means = group.mean_of("layers_s")
            told = ", ".join(f"{name} {number(seconds)}" for name, seconds in means.items() if seconds >= 0.05)
            layers.append([f"{group.name}, {place}", number(sum(means.values())), told])
    tables = []
    if split:
        headings = ["way", "network", "computing", "synchronising", "data and update"]
        tables.append(("Where a step of VGG-16 goes", table(headings, split)))
    if images:
        tables.append(("Images a second on synthetic rows", table(["net", "way", "images/s of each trial"], images)))
    if layers:
        tables.append(("The layers of a short training, seconds", table(["", "all", "of it"], layers)))
    return tables


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _over_links(name: str, gbits: int) -> Part:
    return Part(
        name,
        f"VGG-16 over links of {gbits} Gbit/s",
        "b-network",
        "cifar-10",
        words=["--set", "data.source=cifar10"],
        smallest=[*_SMALLEST, "--set", "max_steps=2"],
        lab=[*_HOSTS, "--bandwidth", f"{gbits}gbit"],
        decodes=True,
    )


def _images(name: str, base: str) -> Part:
    return Part(
        name,
        f"{_IMAGES[name]}, images a second",
        "b-images",
        "",
        base,
        smallest=["--trials", "1", "--set", "max_steps=2"],
    )


EXPERIMENT = Experiment(
    letter="b",
    folder="paper-b-in-band-vs-out-of-band",
    title="In-band against out-of-band",
    question="What do the network, the BLAS and the parameters' channel decide, and what do Spark and YARN cost?",
    parts=[
        Part(
            "blas-lenet",
            "LeNet, MKL against OpenBLAS",
            "b-blas",
            "mnist",
            smallest=[*_SMALLEST, "--set", "max_steps=60"],
        ),
        Part(
            "blas-quick",
            "CIFAR-10 Quick, MKL against OpenBLAS",
            "b-blas",
            "cifar-10",
            "cifar10-quick",
            words=["--set", "data.source=cifar10"],
            smallest=[*_SMALLEST, "--set", "max_steps=60"],
        ),
        Part(
            "workers",
            "LeNet, workers times batch is 128",
            "b-workers",
            "mnist",
            smallest=[*_SMALLEST, "--set", "data.share=0.05"],
        ),
        _over_links(_SLOW, 1),
        _over_links(_FAST, 10),
        Part(
            "layers-yarn",
            "Softmax regression of ours on YARN",
            "b-layers",
            "mnist",
            # What the default leaves outside the heap, 384 MiB, is less than the net and MKL need.
            words=["--only", "variant=ours, in-band", "--set", "spark.executor.memoryOverhead=512m"],
            smallest=[*_SMALLEST, "--set", "epochs=1"],
            # An executor of 2.5 GB, beside the application's own master.
            lab=["--hosts", "2", "--cluster", "yarn", "--hdfs", "--memory", "4g"],
        ),
        Part(
            "layers-local",
            "Softmax regression by TensorFlowOnSpark, plain Keras and ours, on Spark's local cluster",
            "b-layers",
            "mnist",
            smallest=[*_SMALLEST, "--set", "data.share=0.05"],
        ),
        _images("images-resnet-50", ""),
        _images("images-alexnet", "synthetic-alexnet"),
        _images("images-googlenet", "synthetic-googlenet"),
    ],
    scaled=[
        "Up to 16 nodes of 24 or 28 cores are two workers of one core, and for the network two namespaces whose links "
        "a token bucket shapes. No RDMA device: slow against fast is 1 against 10 Gbit/s TCP.",
        "VGG-16 takes 16 steps of 128 rows in place of 18 epochs; a step's time is compared, not the time to 70 %.",
        "CaffeOnSpark and MMLSpark are not among the peers: the topologies that they use stand in their stead, over "
        "our own transports, and so do BigDL's two jobs per step.",
        "ImageNet is not here: AlexNet, GoogLeNet and ResNet-50 train on rows made from a seed, images a second alone.",
        "No GPU, so nothing of the GPU's figures.",
    ],
    story=_story,
)
