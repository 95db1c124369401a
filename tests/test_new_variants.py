"""One file adds a variant of any kind, and takes it away again: shown in a copy of the tree, which is built.

The Python kinds take seconds. The Scala ones take a build, and are part of `make soak`; what the build makes of each
declaration is in tests/test_build_tools.py, without a build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import test_build_tools

ROOT = Path(__file__).resolve().parents[1]
SCALA = Path("jvm") / "src" / "main" / "scala" / "sparkdlbench"
PYTHON = Path("python") / "sparkdl_bench"
BUILD_LIMIT_S = 900
LIMIT_S = 120


@dataclass(frozen=True)
class Added:
    """A new file, which is one of ours under other names or a text.

    Attributes:
        kind: the trait, as `project/Services.scala` names it.
        name: of the variant, where it has one.
        like: the file of ours, without its ending.
        renamed: in it, what is called otherwise; of a name between quotes the quotes are part.
        text: the file, where there is nothing like it.
    """

    kind: str
    file: str
    name: str = ""
    like: str = ""
    renamed: tuple[tuple[str, str], ...] = ()
    text: str = ""

    @property
    def provider(self) -> str:
        return "sparkdlbench." + self.file.replace("/", ".")

    @property
    def code(self) -> str:
        if not self.like:
            return f"package sparkdlbench.{self.file.rpartition('/')[0].replace('/', '.')}\n\n{self.text}"
        code = (ROOT / SCALA / f"{self.like}.scala").read_text(encoding="utf-8")
        for old, new in self.renamed:
            code, count = re.subn(old if old.startswith('"') else rf"(?<!\")\b{old}\b", new, code)
            assert count > 0, f"{self.like} has no {old}"
        return code


NEW = (
    Added(
        "config.Axis",
        "codec/NewAxis",
        "new-axis",
        text="import sparkdlbench.config.{Axis, Key, Variant, Variants}\n\nfinal class NewAxis extends Axis {\n"
        '  def place = 99\n  def name = "new-axis"\n'
        '  def key: Key[String] = Key.text("new.axis", "fp32", "A new axis")\n'
        "  override def keys: Seq[Key[_]] = Seq(key)\n"
        "  def variants: Seq[Variant] = Variants.all[Codec]\n}\n",
    ),
    Added(
        "config.KeyGroup",
        "results/NewKeys",
        text="import sparkdlbench.config.{Key, KeyGroup}\n\nfinal class NewKeys extends KeyGroup {\n"
        '  def keys: Seq[Key[_]] = Seq(Key.text("new.key", "", "A new key"))\n}\n',
    ),
    Added(
        "codec.Codec", "codec/NewCodec", "new-codec", "codec/Bf16", (("Bf16", "NewCodec"), ('"bf16"', '"new-codec"'))
    ),
    Added(
        "topology.Topology",
        "topology/NewRing",
        "new-ring",
        "topology/Ring",
        (("Ring", "NewRing"), ('"ring"', '"new-ring"')),
    ),
    Added(
        "transport.TransportVariant",
        "transport/push/NewStream",
        "new-stream",
        "transport/push/BlockStream",
        (("BlockStream", "NewStream"), ('"block-stream"', '"new-stream"')),
    ),
    Added(
        "transport.TransportVariant",
        "job/NewJobs",
        "new-jobs",
        "job/BlockManagerTransport",
        (
            ("BlockManagerTransport", "NewJobs"),
            ("BlockManagerExchange", "NewJobsExchange"),
            ('"block-manager"', '"new-jobs"'),
        ),
    ),
    Added(
        "algorithm.Algorithm",
        "algorithm/NewSgd",
        "new-sgd",
        "algorithm/LocalSgd",
        (
            ("LocalSgd", "NewSgd"),
            ("LocalSgdRank", "NewSgdRank"),
            ('"local-sgd"', '"new-sgd"'),
            (r'"local\.(?=tau|from)', '"new.'),
        ),
    ),
    Added(
        "optimizer.OptimizerVariant",
        "optimizer/NewGradVariant",
        "new-grad",
        "optimizer/AdaGrad",
        (("AdaGradVariant", "NewGradVariant"), ("AdaGrad", "NewGrad"), ('"adagrad"', '"new-grad"')),
    ),
    Added(
        "optimizer.ScheduleVariant",
        "optimizer/NewSchedule",
        "new-wave",
        "optimizer/CosineSchedule",
        (("CosineSchedule", "NewSchedule"), ('"cosine"', '"new-wave"'), (r'"schedule\.steps"', '"new.steps"')),
    ),
    Added(
        "loss.Loss",
        "loss/NewLoss",
        "new-loss",
        "loss/Absolute",
        (("Absolute", "NewLoss"), ('"absolute"', '"new-loss"')),
    ),
    Added(
        "model.ModelFamily",
        "model/NewFamily",
        "new-net",
        "model/LeNet",
        (("LeNetFamily", "NewFamily"), ('"lenet"', '"new-net"')),
    ),
    Added(
        "model.LayerKind",
        "model/NewKind",
        text='final class NewKind extends ElementwiseKind {\n  def name = "new-layer"\n'
        '  def doc = "max(x, 0), too"\n}\n',
    ),
    Added(
        "engine.libtorch.TorchLayerKind",
        "engine/libtorch/NewTorchLayer",
        text='final class NewTorchLayer extends TorchLayerKind {\n  def name = "new-layer"\n'
        "  private[libtorch] def load(context: LayerContext): TorchLayer = new ReluLayer\n}\n",
    ),
    Added(
        "engine.bigdl.BigDlLayerKind",
        "engine/bigdl/NewBigDlLayer",
        text='final class NewBigDlLayer extends BigDlLayerKind {\n  def name = "new-layer"\n'
        "  private[bigdl] def create(at: BigDlPlace): BigDlLayer =\n"
        '    new BigDlLayer(Seq(at.library.create("ReLU", false)))\n}\n',
    ),
    Added(
        "data.DataSource",
        "data/NewDigits",
        "new-rows",
        "data/Digits",
        (("Digits", "NewDigits"), ('"digits"', '"new-rows"')),
    ),
    Added(
        "engine.EngineVariant",
        "engine/python/NewEngine",
        "new-engine",
        "engine/python/NumpyVariant",
        (("NumpyVariant", "NewEngine"), ('"numpy"', '"new-engine"')),
    ),
)
KEYS = ("new.axis", "new.key", "new.tau", "new.from_epoch", "new.steps")
# One that would not be found, since it is not final.
LOST = next(each.code for each in NEW if each.name == "new-codec").replace("final class NewCodec", "class LostCodec")


def test_a_file_of_each_scala_kind_is_added_here() -> None:
    assert {each.kind for each in NEW} == set(test_build_tools.kinds())
    for each in NEW:
        assert f"final class {each.file.rpartition('/')[2]}" in each.code, each.file


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the jars `with` the new files, `without` them and without the engine `bigdl`, and what sbt says.

    In the end it says why it fails, when a declaration is lost.
    """
    copy = tmp_path_factory.mktemp("tree")
    copy_tree(copy)
    for each in NEW:
        (copy / SCALA / f"{each.file}.scala").write_text(each.code, encoding="utf-8")
    (copy / "lost").mkdir()
    (copy / "lost" / "LostCodec.scala").write_text(LOST, encoding="utf-8")
    (copy / "steps.sbt").write_text(
        'commands += Command.single("system") { (state, line) =>\n'
        '  if (scala.sys.process.Process(Seq("bash", "-euc", line)).! == 0) state else state.fail\n}\n'
    )
    for name in ("with", "without", "bigdl"):
        (copy / name).mkdir()
    jar = "jvm/target/scala-2.13/sparkdl-bench-spark-4_2.13-*.jar"
    new = " ".join(str(SCALA / f"{each.file}.scala") for each in NEW)
    done = subprocess.run(
        [
            *(str(copy / "project" / "sbt"), "jvm/packageBin", f"system cp {jar} with"),
            *(f"system rm {new}", "jvm/packageBin", f"system cp {jar} without"),
            *(f"system rm -r {SCALA}/engine/bigdl", "jvm/packageBin", f"system cp {jar} bigdl"),
            *(f"system cp lost/LostCodec.scala {SCALA}/codec", "jvm/packageBin"),
        ],
        cwd=copy,
        env={name: value for name, value in os.environ.items() if name != "SBT_PROJECT"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    assert list((copy / "bigdl").glob("*.jar")), done.stdout
    assert done.returncode == 1, done.stdout
    return copy, done.stdout


def copy_tree(to: Path) -> None:
    """The files that git knows, with their changes, and what is compiled of them, so that little is compiled anew."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=LIMIT_S,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    for name in ("classes", "zinc", "resource_managed", "update"):
        folder = Path("jvm") / "target" / "scala-2.13" / name
        if (ROOT / folder).is_dir():
            shutil.copytree(ROOT / folder, to / folder)


def catalogue(jar: Path) -> dict[str, Any]:
    with ZipFile(jar) as archive:
        found: dict[str, Any] = json.loads(archive.read("sparkdlbench/catalogue.json"))
    return found


def names(found: dict[str, Any]) -> set[str]:
    """Of all axes and variants."""
    return {str(each["name"]) for variants in found["variants"].values() for each in variants} | set(found["variants"])


@pytest.mark.campaign
@pytest.mark.on_one_line
def test_one_scala_file_adds_a_variant_and_its_keys(built: tuple[Path, str]) -> None:
    folder, _ = built
    (jar,) = (folder / "with").glob("*.jar")
    with ZipFile(jar) as archive:
        for each in NEW:
            providers = archive.read(f"META-INF/services/sparkdlbench.{each.kind}").decode().split()
            assert each.provider in providers
            assert each.provider.replace(".", "/") + ".class" in archive.namelist()
    found = catalogue(jar)
    assert {each.name for each in NEW if each.name} <= names(found)
    assert set(KEYS) <= {key["name"] for key in found["keys"]}
    assert "new-codec" in [each["name"] for each in found["variants"]["new-axis"]]


@pytest.mark.campaign
@pytest.mark.on_one_line
def test_the_command_line_knows_what_was_added(built: tuple[Path, str]) -> None:
    folder, _ = built
    environment = {**os.environ, "SPARKDL_JARS": str(folder / "with"), "PYTHONPATH": str(ROOT / "python")}

    def listed(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sparkdl_bench", "list", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    everything = listed()
    assert [each.name for each in NEW if each.name and not re.search(rf"^ *{each.name}\b", everything, re.M)] == []
    assert "new.tau" in listed("algorithm", "new-sgd")
    assert "new-codec" in listed("new-axis")


@pytest.mark.campaign
@pytest.mark.on_one_line
def test_nothing_is_left_where_the_files_are_taken_away(built: tuple[Path, str]) -> None:
    folder, _ = built
    (jar,) = (folder / "without").glob("*.jar")
    found = catalogue(jar)
    assert not {each.name for each in NEW} & names(found)
    assert not set(KEYS) & {key["name"] for key in found["keys"]}
    with ZipFile(jar) as archive:
        entries = archive.namelist()
    assert not [each.file for each in NEW if any(f"sparkdlbench/{each.file}." in entry for entry in entries)]


@pytest.mark.campaign
@pytest.mark.on_one_line
def test_all_else_compiles_without_the_engine_bigdl(built: tuple[Path, str]) -> None:
    folder, _ = built
    engines = [
        {each["name"] for each in catalogue(jar)["variants"]["engine"]}
        for name in ("without", "bigdl")
        for jar in (folder / name).glob("*.jar")
    ]
    assert engines[0] - engines[1] == {"bigdl"}
    assert len(engines[1]) >= 3


@pytest.mark.campaign
@pytest.mark.on_one_line
def test_a_declaration_that_would_not_be_found_fails_the_build(built: tuple[Path, str]) -> None:
    _, said = built
    assert "LostCodec is a Codec and would not be found, because it is not final" in said


PEER = """from sparkdl_bench.peers.memcpy import MemoryCopy

PEER = MemoryCopy(name="new-peer", doc="A copy, too")
"""
ENGINE = """from dataclasses import replace

from sparkdl_bench.engines.numpy import ENGINE as NUMPY

ENGINE = replace(NUMPY, name="new-engine")
"""
COMMAND = '''import click


@click.command("new-thing")
def command() -> None:
    """Do a new thing."""
    click.echo("done")
'''
# By the file: what it holds, which words show it, and what they print.
ADDED = {
    PYTHON / "commands" / "new_thing.py": (COMMAND, ["--help"], "Do a new thing."),
    PYTHON / "peers" / "new_peer.py": (PEER, ["peers", "list"], "new-peer"),
    PYTHON / "engines" / "new_engine.py": (ENGINE, [], "new-engine"),
    Path("benchmarks", "suites", "new_suite.py"): (COMMAND, ["bench", "--help"], "Do a new thing."),
}
ENGINES = "from sparkdl_bench import engines; print(*engines.discover())"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The Python sources, where a checkout has them."""
    for name in ("python", "benchmarks/suites", "benchmarks/faults", "benchmarks/papers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "build.sbt", tmp_path)
    return tmp_path


def says(tree: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """What a command of that tree prints; without words, the engines that there are."""
    program = ["-m", "sparkdl_bench", *words] if words else ["-c", ENGINES]
    return subprocess.run(
        [sys.executable, *program],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "python"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize("file", ADDED, ids=lambda file: file.parent.name)
def test_one_python_file_adds_a_variant(tree: Path, file: Path) -> None:
    code, words, shown = ADDED[file]
    assert shown not in says(tree, words).stdout
    (tree / file).write_text(code, encoding="utf-8")
    done = says(tree, words)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    (tree / file).unlink()
    assert shown not in says(tree, words).stdout


def test_without_a_checkout_the_command_bench_says_where_its_suites_are(tree: Path) -> None:
    (tree / "build.sbt").unlink()  # so that it is an installed package
    helped = says(tree, ["bench", "--help"])
    assert helped.returncode == 0, helped.stderr
    assert "Commands:" not in helped.stdout
    refused = says(tree, ["bench", "short"])
    assert refused.returncode == 2
    assert len(refused.stderr.strip().splitlines()) == 1
    for said in (" ".join(helped.stdout.split()), refused.stderr):
        assert "In a checkout run `make bench`, or `.venv/bin/sparkdl-bench bench SUITE`." in said


@pytest.mark.parametrize("file", ADDED, ids=lambda file: file.parent.name)
def test_a_python_file_without_its_declaration_is_an_error(tree: Path, file: Path) -> None:
    (tree / file).write_text("name = 1\n", encoding="utf-8")
    done = says(tree, ADDED[file][1])
    assert done.returncode == 1
    assert "has no attribute" in done.stderr or "AttributeError" in done.stderr
