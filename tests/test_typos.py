"""What people mistype: each is refused with what they meant, in ten lines at most, and before any JVM starts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkdl_bench import catalogue, config, helper_process, session
from sparkdl_bench.cli import cli
from sparkdl_bench.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[1]
DIGITS = "digits-mlp"
TERMINAL_COLUMNS = 100
MOST_LINES = 10
MOST_SECONDS = 0.5

# The words, and what the answer must suggest.
WRONG: list[tuple[str, str]] = [
    # Keys.
    (f"run {DIGITS} --set wrokers=4", "Did you mean 'workers'?"),
    (f"run {DIGITS} --set epohcs=2", "Did you mean 'epochs'?"),
    (f"run {DIGITS} --set bacth=64", "Did you mean 'batch'?"),
    (f"run {DIGITS} --set optimizer.learnin_rate=0.1", "Did you mean 'optimizer.learning_rate'?"),
    (f"run {DIGITS} --set learnig_rate=0.1", "Did you mean 'optimizer.learning_rate'?"),
    (f"run {DIGITS} --set model.hiden=64", "Did you mean 'model.hidden'?"),
    (f"run {DIGITS} --set transprot=tcp", "Did you mean 'transport'?"),
    (f"run {DIGITS} --set engine.blass=mkl", "Did you mean 'engine.blas'?"),
    (f"run {DIGITS} --set data.sorce=digits", "Did you mean 'data.source'?"),
    (f"run {DIGITS} --set batchsise=64", "Did you mean 'batch'?"),
    (f"run {DIGITS} --set spark.sparkdl.evaluateEvry=2", "Did you mean 'evaluate_every'?"),
    (f"run {DIGITS} --set zzz=1", "'zzz'. `sparkdl-bench list keys` describes all keys."),
    (f"run {DIGITS} --set wrokers=4 --set epohcs=2", "Did you mean 'epochs'?"),
    (f"run {DIGITS} --set steps=100", "may mean max_steps or schedule.steps"),
    # Values.
    (f"run {DIGITS} --set codec=bf61", "Did you mean 'bf16'?"),
    (f"run {DIGITS} --set transport=block-straem", "Did you mean 'block-stream'?"),
    (f"run {DIGITS} --set transport=gloo", "the peer pytorch-ddp"),
    (f"run {DIGITS} --set topology=rign", "Did you mean 'ring'?"),
    (f"run {DIGITS} --set algorithm=sync-sdg", "Did you mean 'sync-sgd'?"),
    (f"run {DIGITS} --set model=resnet-81", "Did you mean 'resnet-18'?"),
    (f"run {DIGITS} --set optimizer=adamm", "Did you mean 'adam'?"),
    (f"run {DIGITS} --set data=digist", "Did you mean 'digits'?"),
    (f"run {DIGITS} --set engine.blas=openbls", "Did you mean 'openblas'?"),
    (f"run {DIGITS} --set workers=two", "a whole number, at least 1"),
    (f"run {DIGITS} --set workers=0", "a whole number, at least 1"),
    (f"run {DIGITS} --set lr=fast", "a number, at least 0"),
    (f"run {DIGITS} --set optimizer.nesterov=yes", "Did you mean 'true'?"),
    (f"run {DIGITS} --set model.hidden=64;64", "whole numbers above 0"),
    # What does not go together, or with the session.
    (f"run {DIGITS} --set batch=1", "Set batch to 2 or more"),
    (f"run {DIGITS} --set workers=4", "master=local-cluster[4,1,2048]"),
    (f"run {DIGITS} --master local[1]", "master=local[2]"),
    (f"run {DIGITS} --master localhost:7077", "Did you mean 'spark://localhost:7077'?"),
    (f"run {DIGITS} --master local-cluster[2,1,512]", "Set the master's last number to 1024"),
    (f"run {DIGITS} --set spark.executor.memory=100m", "at least 450m"),
    ("run mnist-mlp --set data.path=conf/rnus", "Did you mean 'runs'?"),
    # Files, commands, options.
    ("run README.csv", "No such file or directory"),
    ("try digits --minutes ten", "Invalid value for '--minutes': 'ten' is no number."),
    ("launch train.py --workers two", "Invalid value for '--workers': 'two' is no whole number."),
    ("data clean --older-than x", "Invalid value for '--older-than': 'x' is no number."),
    ("run digits-mpl", "Did you mean 'digits-mlp'?"),
    ("run conf/runs/digits-mpl.toml", "Did you mean 'conf/runs/digits-mlp.toml'?"),
    ("compare wokers", "Did you mean 'workers'?"),
    ("compare workers --set epohcs=2", "Did you mean 'epochs'?"),
    ("runn digits-mlp", "Did you mean 'run'?"),
    ("train digits-mlp", "Did you mean 'run'?"),
    ("data stat digits-mlp", "Did you mean 'stats'?"),
    (f"run {DIGITS} --sett batch=64", "Did you mean '--set'?"),
    (f"run {DIGITS} --lr 0.1", "`--set optimizer.learning_rate=VALUE`"),
    (f"run {DIGITS} --workers 2", "`--set workers=VALUE`"),
    ("doctor --no-strat", "Did you mean '--no-start'?"),
    ("report results --format htm", "Did you mean 'html'?"),
    ("list transprot", "Did you mean 'transport'?"),
    ("list codec bf61", "Did you mean 'bf16'?"),
]


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was to be started")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(session, "start_jvm", refuse)
    monkeypatch.setattr(helper_process, "ask", refuse)


def run(words: str) -> Result:
    return run_words(*words.split(" "))


def run_words(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.mark.parametrize(("words", "suggested"), WRONG, ids=[words for words, _ in WRONG])
def test_a_wrong_word_is_told_what_was_meant(words: str, suggested: str) -> None:
    answered = run(words)
    assert answered.exit_code == 2, answered.output
    assert answered.stdout == ""
    assert suggested in answered.stderr
    lines = [part for line in answered.stderr.splitlines() for part in textwrap.wrap(line, TERMINAL_COLUMNS)]
    assert len(lines) <= MOST_LINES, answered.stderr


# What people write who know other programs: nothing of ours is a typing error away, so nothing is suggested.
FAR = [
    *("--set zzz=1", "--set gpus=1", "--set loss=hinge", "--set patience=3", "--set metrics=auc", "--set hosts=a"),
    *("--set sampler=x", "--set num_gpus=2", "--set early_stopping=true", "--set amp=true", "--set verbose=1"),
    *("--set transport=mpirun2", "--set data=mnist", "--set model=transformer", "--set model=imagenet"),
    *("--set codec=int8", "--set topology=torus", "--set optimizer=lion", "--set algorithm=gzip", "--quiet"),
]


@pytest.mark.parametrize("words", FAR)
def test_far_words_are_not_suggested(words: str) -> None:
    answered = run(f"run {DIGITS} {words}")
    assert answered.exit_code == 2
    assert "Did you mean" not in answered.stderr
    assert "  " not in answered.stderr
    assert "'" + words.removeprefix("--set ").split("=")[0 if "Unknown" in answered.stderr else -1] in answered.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("dropout_rate", "Did you mean 'model.dropout'?"),
        ("wrkrs", "Did you mean 'workers'?"),
        ("btch", "Did you mean 'batch'?"),
        ("num_classes", "Did you mean 'data.classes'?"),
        ("transport_name", "Did you mean 'transport'?"),
    ],
)
def test_words_that_are_near_enough(typed: str, meant: str) -> None:
    assert meant in run(f"run {DIGITS} --set {typed}=1").stderr


def test_no_option_is_near_so_all_are_named() -> None:
    assert (
        "There is no option '--quiet'. Options: --set, --spark-conf, --resume, --master, --debug, "
        in run(f"run {DIGITS} --quiet").stderr
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("jars fetch --line 4.5", "'4.5' is not one of '3.5', '4'. `"),
        ("deploy digits-mlp", "There is no command 'deploy'. Commands: bench, "),
        ("list gpus", "There is no axis called 'gpus'. Valid: "),
        ("run no-such-thing-at-all", "No such file or directory. A run file is TOML, or"),
        ("try no-such-thing-at-all", "There is no file or folder 'no-such-thing-at-all'. Give a path of this host"),
    ],
)
def test_the_same_for_commands_axes_and_files(words: str, said: str) -> None:
    assert said in run(words).stderr


def test_data_in_the_place_of_a_run_file(tmp_path: Path) -> None:
    for name in ("my rows.csv", "rows.parquet", "rows.csv.gz"):
        (tmp_path / name).write_bytes(b"PAR1\xff")
        quoted = shlex.quote(str(tmp_path / name))
        answered = run_words("run", str(tmp_path / name))
        assert answered.exit_code == 2
        assert answered.stderr == (
            f"'{tmp_path / name}' is data by its name, and a run file is TOML that says how to train on data. "
            f"`sparkdl-bench init --data {quoted}` writes one, and `sparkdl-bench try {quoted}` trains without.\n"
        )


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [
        ("lr=0.1", "optimizer.learning_rate", "0.1"),
        ("learning_rate=0.1", "optimizer.learning_rate", "0.1"),
        ("spark.sparkdl.learningRate=0.1", "optimizer.learning_rate", "0.1"),
        ("batch_size=64", "batch", "64"),
        ("num_workers=4", "workers", "4"),
        ("n_epochs=3", "epochs", "3"),
        ("hidden=64", "model.hidden", "64"),
        ("model=resnet18", "model.name", "resnet-18"),
        ("model.name=ResNet_50", "model.name", "resnet-50"),
        ("optimizer=Adam", "optimizer.name", "adam"),
        ("codec=bfloat16", "codec", "bf16"),
        ("codec=float32", "codec", "fp32"),
        ("transport=block_stream", "transport", "block-stream"),
        ("dataset=mnist", "data.source", "mnist"),  # no such source, so it stays for whoever refuses it
        ("engine.blas=OpenBLAS", "engine.blas", "openblas"),
        ("nonsense=1", "nonsense", "1"),
    ],
)
def test_other_words_are_taken_for_what_they_mean(written: str, key: str, value: str) -> None:
    assert config.RunFile().with_settings([written]).settings == {key: value}


def test_what_is_set_by_another_word_replaces_the_file_s(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text("batch_size = 32\n[optimizer]\nlearning_rate = 0.1\n", encoding="utf-8")
    found = config.load_run_file(file, ["lr=0.5"])
    assert found.settings == {"name": "one", "batch": "32", "optimizer.learning_rate": "0.5"}


def test_a_file_says_one_thing_of_a_key() -> None:
    with pytest.raises(ConfigurationError, match=r"sets 'optimizer\.learning_rate' twice: .*, and as 'lr' to '0\.2'"):
        config.parse_run_file("optimizer.learning_rate = 0.1\nlr = 0.2\n", "a.toml")


def test_the_runs_that_we_ship_have_no_faults() -> None:
    known = catalogue.load()
    assert known is not None, "the jar holds no catalogue"
    for file in sorted((ROOT / "conf" / "runs").glob("*.toml")):
        if "\nbase = " not in file.read_text(encoding="utf-8"):
            assert known.faults(config.load_run_file(file).settings) == {}, file.name


def test_every_default_is_valid() -> None:
    known = catalogue.load()
    assert known is not None
    assert known.faults({key: known.default(key) for key in known.keys}) == {}
    assert len(known.keys) > 100


def test_a_jar_without_a_catalogue_leaves_the_check_to_the_jvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARKDL_JARS", str(tmp_path))
    (tmp_path / "sparkdl-bench-spark-4_2.13-9.jar").write_bytes(b"no zip")
    (tmp_path / "sparkdl-bench-spark-3.5_2.12-9.jar").write_bytes(b"no zip")
    catalogue.load.cache_clear()
    try:
        assert catalogue.load() is None
        catalogue.check({"wrokers": "2"})
        assert catalogue.canonical("lr", "0.1") == ("lr", "0.1")
    finally:
        catalogue.load.cache_clear()


def test_a_refused_input_loads_nothing_heavy_and_needs_no_java() -> None:
    """In a process of its own without any Java: numpy, pyspark, rich and psutil would each take longer than all "
    "else."""
    program = (
        "import sys\n"
        "from sparkdl_bench.cli import cli\n"
        "try:\n    cli(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    heavy = {'numpy', 'pyspark', 'rich', 'psutil', 'py4j'} & set(sys.modules)\n"
        "    print(end.code, sorted(heavy))\n"
    )
    for words in (f"run {DIGITS} --set wrokers=4", "compare workers --set epohcs=2", "runn"):
        environment = {**os.environ, "JAVA_HOME": "/nonexistent", "PATH": str(ROOT / "no-such-folder")}
        done = subprocess.run(
            [sys.executable, "-c", program, *words.split()],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "2 []\n", done.stdout + done.stderr
        assert "Did you mean" in done.stderr


@pytest.mark.campaign
def test_a_wrong_word_is_answered_in_half_a_second() -> None:
    """Whole commands, from their start to their end; the best of five tries, as other programs delay some."""
    slow = []
    for words, _ in WRONG:
        seconds, of_cpu = min(_seconds(words) for _ in range(5))
        print(f"{seconds:.2f} s, {of_cpu:.2f} s of CPU  {words}")
        if seconds >= MOST_SECONDS:
            slow.append(f"{seconds:.2f} s: {words}")
    assert not slow, "\n".join(slow)


def _seconds(words: str) -> tuple[float, float]:
    """By the clock, and of CPU."""
    before, started = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "sparkdl_bench", *words.split(" ")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    seconds, after = time.perf_counter() - started, os.times()
    assert done.returncode == 2, done.stderr
    return seconds, sum(after[2:4]) - sum(before[2:4])
