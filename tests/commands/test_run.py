"""`sparkdl-bench run` as a user runs it: a process of its own, two executor processes, the files that it leaves."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from conftest import CommandLine, shared_data
from signalling import is_progress
from sparkdl_bench.results import RunResults
from sparkdl_bench.saved import load

DIGITS = "conf/runs/digits-mlp.toml"


def results_in(folder: Path) -> RunResults:
    """The only run in a folder."""
    (found,) = folder.iterdir()
    return RunResults(found)


def test_digits_from_the_file_to_the_page(command_line: CommandLine, tmp_path: Path) -> None:
    done = command_line.run("run", DIGITS, "--set", f"results={tmp_path}", "--set", "spark.ssl.keyPassword=hunter2")
    assert done.returncode == 0, done.stderr
    results = results_in(tmp_path)
    assert results.summary["final"]["test_accuracy"] >= 0.95
    assert "test accuracy" in done.stdout
    assert "bytes host-local" in done.stdout
    assert f"page                             {results.folder / 'page.html'}\n" in done.stdout
    assert {"run.json", "events.jsonl", "summary.json", "page.html", "plot.png", "spark.log"} <= {
        path.name for path in results.folder.iterdir()
    }
    assert results.run["spark"]["spark.master"] == "local-cluster[2,1,2048]"
    model = load(results.folder / "model")
    assert model.specification["name"] == "mlp"
    assert {name: array.shape for name, array in model.weights.items()} == {
        "fc1.weight": (64, 64),
        "fc1.bias": (64,),
        "fc2.weight": (10, 64),
        "fc2.bias": (10,),
    }
    for path in filter(Path.is_file, results.folder.rglob("*")):
        assert b"hunter2" not in path.read_bytes(), f"{path.name} holds a secret"
    # Progress, in plain lines, since standard error is no terminal; nothing of Spark's own.
    lines = done.stderr.splitlines()
    assert all(is_progress(line) for line in lines), done.stderr
    assert lines[0].endswith(" s  starting the driver's JVM")
    assert lines[1].endswith(" s  starting Spark (local-cluster[2,1,2048])")
    # The last line has the last step's loss, which is far from the first's (2.3).
    assert float(lines[-1].split("loss ")[1].split()[0]) < 0.5, lines[-1]
    waited = float(done.stdout.split("seconds since the command began")[1].split()[0])
    assert waited > results.summary["final"]["seconds_total"]


def test_the_page_holds_the_run(command_line: CommandLine, tmp_path: Path) -> None:
    words = ["--set", f"results={tmp_path}", "--set", "epochs=1", "--set", "master=local[2]", "--set", "name=</script>"]
    done = command_line.run("run", DIGITS, *words)
    assert done.returncode == 0, done.stderr
    page = (results_in(tmp_path).folder / "page.html").read_text()
    assert page.count("</script>") == 1, "a name in the data ends the script"
    data = page.split("const run = ", 1)[1].split(";\n", 1)[0]
    shown = json.loads(data)
    assert shown["summary"] == results_in(tmp_path).summary
    assert shown["run"]["configuration"]["name"] == "</script>"


def test_mnist_in_one_epoch(command_line: CommandLine, tmp_path: Path) -> None:
    data = shared_data("mnist")
    done = command_line.run(
        "run",
        "conf/runs/mnist-mlp.toml",
        "--set",
        f"data.path={data}",
        "--set",
        f"results={tmp_path}",
        "--set",
        "epochs=1",
    )
    assert done.returncode == 0, done.stderr
    assert results_in(tmp_path).summary["final"]["test_accuracy"] >= 0.95


# What a run does once it is cancelled has nothing to do with the signal: executors for one of them.
@pytest.mark.parametrize(
    ("number", "status", "master"),
    [(signal.SIGINT, 130, "local-cluster[2,1,2048]"), (signal.SIGTERM, 143, "local[2]")],
)
def test_a_signal_cancels_and_leaves_a_summary(
    command_line: CommandLine, tmp_path: Path, number: signal.Signals, status: int, master: str
) -> None:
    words = ["--set", f"results={tmp_path}", "--set", "epochs=100000", "--set", f"master={master}"]
    process = command_line.start("run", DIGITS, *words)
    assert process.stderr is not None
    seen = ""
    while " epoch " not in seen:
        line = process.stderr.readline()
        seen += line
        assert line, seen
    os.kill(process.pid, number)
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == status
    assert "The run was cancelled" in stderr
    assert results_in(tmp_path).summary["status"] == "cancelled"


def test_a_failure_while_training_leaves_a_summary(command_line: CommandLine, tmp_path: Path) -> None:
    # The executors cannot unpack native code into a folder that cannot be made.
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    results = tmp_path / "results"
    done = command_line.run("run", DIGITS, "--set", f"results={results}", "--set", f"engine.cache={nowhere / 'cache'}")
    assert done.returncode == 2, done.stderr  # the user can fix it, though only a rank could tell
    assert "Traceback" not in done.stderr
    summary = results_in(results).summary
    assert summary["status"] == "failed"
    assert summary["error"]
    assert summary["error"] in done.stderr
    assert (results_in(results).folder / "page.html").is_file()


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("wrokers=2", "Did you mean 'workers'"),
        ("data.source=idx", "data.path"),
        ("spark.dynamicAllocation.enabled=true", "dynamicAllocation"),
        ("master=nonsense", "'nonsense' is no Spark master"),
    ],
)
def test_what_a_user_can_mend_is_2_and_one_paragraph(
    command_line: CommandLine, tmp_path: Path, assignment: str, words: str
) -> None:
    results = tmp_path / "results"
    done = command_line.run(
        "run", DIGITS, "--set", f"results={results}", "--set", "master=local-cluster[2,1,1024]", "--set", assignment
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert len([line for line in done.stderr.strip().splitlines() if not is_progress(line)]) == 1, done.stderr
    assert not results.exists()


def test_a_folder_with_the_other_lines_jar_alone(command_line: CommandLine, make_jars: object) -> None:
    import pyspark

    other = "3.5_2.12" if pyspark.__version__.startswith("4") else "4_2.13"
    folder = make_jars({f"sparkdl-bench-spark-{other}-0.1.0.jar": [], "pytorch-1.jar": []})  # type: ignore[operator]
    done = command_line.run("run", DIGITS, SPARKDL_JARS=str(folder))
    assert done.returncode == 2
    assert f"sparkdl-bench-spark-{other}-0.1.0.jar" in done.stderr
