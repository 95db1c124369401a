"""Training in a real Jupyter kernel: the progress is an output of the cell."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

from conftest import ROOT

PROGRAM = """
import sparkdl_bench
from pyspark.sql import SparkSession
spark = sparkdl_bench.configure(SparkSession.builder.master("local[2]")).getOrCreate()
result = sparkdl_bench.Trainer(data="digits", epochs=2, batch=32, results={results!r}).fit(spark)
spark.stop()
"""


@pytest.mark.on_one_line
# Jupyter's own libraries tell of changes to come in their next versions.
@pytest.mark.filterwarnings("default")
def test_a_notebook_shows_the_progress_as_html(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PROGRAM.format(results=str(tmp_path)))])
    nbclient.NotebookClient(notebook, timeout=200, startup_timeout=200, kernel_name="python3").execute()
    shown = [output for output in notebook.cells[0].outputs if output.output_type == "display_data"]
    [output] = shown  # one, written anew
    page = output.data["text/html"]
    assert "done: epoch 2/2" in page
    assert "test accuracy" in page
    assert str(tmp_path) in page


@pytest.mark.on_one_line
@pytest.mark.filterwarnings("default")
@pytest.mark.long
def test_the_tutorials_notebook_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CSV file with gaps and words, cross-validation, and a stream: each cell prints what is kept in the file."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    notebook = nbformat.read(ROOT / "docs" / "tutorial" / "csv-to-stream.ipynb", as_version=4)
    kept = [_printed(cell) for cell in notebook.cells]
    client = nbclient.NotebookClient(
        notebook, timeout=200, startup_timeout=200, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    assert [_printed(cell) for cell in notebook.cells] == kept
    assert any("right above 0.9: True" in text for text in kept)


def _printed(cell: nbformat.NotebookNode) -> str:
    """What a code cell wrote to standard output; not what it shows of a run, whose times differ."""
    outputs = cell.get("outputs", [])
    return "".join(each.text for each in outputs if each.output_type == "stream" and each.name == "stdout")
