"""Models as MLflow's flavour: logged to a run, loaded again, and served through pyfunc without Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import golden
from conftest import ROOT
from sparkdl_bench import ConfigurationError, Model, models, saved
from trained import perceptron

# Importing mlflow.pyfunc, and saving with it, warn of what is MLflow's and its libraries' own.
pytestmark = pytest.mark.filterwarnings("default")
mlflow = pytest.importorskip("mlflow")
pytest.importorskip("pandas")

if TYPE_CHECKING:
    import pandas
else:
    pandas = pytest.importorskip("pandas")


def model_of(name: str, rows: dict[str, Any] | None = None) -> Model:
    specification = json.loads((golden.FOLDER / f"{name}.json").read_text(encoding="utf-8"))["model"]
    spec = models.read(specification)
    random = np.random.default_rng(2)
    places = (*spec.parameters, *spec.statistics)
    weights = {place.name: np.abs(random.normal(0.3, 0.1, place.shape)).astype(np.float32) for place in places}
    return Model(saved.SavedModel(specification, weights, rows or {"shape": list(spec.input_shape)}))


@pytest.fixture
def tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    # A folder needs no database; MLflow keeps it working, and asks to be told that it is meant.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.create_experiment("tests", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow.set_experiment("tests")
    yield
    mlflow.set_tracking_uri(before)


def test_a_saved_model_serves_frames_and_arrays(tmp_path: Path) -> None:
    import sparkdl_bench.mlflow as flavour

    model = perceptron(columns=["x", "y"], labels=["cat", "dog", "owl"])
    rows = np.array([[0.5, -1.0], [2.0, 0.25]])
    flavour.save_model(model, tmp_path / "saved", input_example=pandas.DataFrame(rows, columns=["x", "y"]))
    labels, probabilities = model.predict(rows)
    served = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    # By the columns' names, in whatever order; others are left out.
    found = served.predict(pandas.DataFrame({"y": rows[:, 1], "id": [7, 8], "x": rows[:, 0]}))
    assert list(found.columns) == ["prediction", "probability"]
    assert found["prediction"].tolist() == labels.tolist()
    np.testing.assert_allclose(np.stack(found["probability"]), probabilities)
    assert served.metadata.get_input_schema().input_names() == ["x", "y"]
    with pytest.raises(mlflow.MlflowException, match="missing"):
        served.predict(pandas.DataFrame({"x": [1.0]}))
    again = flavour.load_model(str(tmp_path / "saved"))
    assert (again.labels, again.columns) == (model.labels, model.columns)
    np.testing.assert_array_equal(again.scores(rows), model.scores(rows))
    with pytest.raises(ConfigurationError, match="holds something already"):
        flavour.save_model(model, tmp_path / "saved")
    with pytest.raises(ConfigurationError, match=r"model is a dict\. Give the sparkdl_bench\.Model"):
        flavour.save_model({}, tmp_path / "other")  # type: ignore[arg-type]


def test_a_regression_and_rows_without_names(tmp_path: Path) -> None:
    import sparkdl_bench.mlflow as flavour

    model = perceptron(1)
    flavour.save_model(model, tmp_path / "saved")
    served = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    rows = np.array([[0.5, -1.0], [2.0, 0.25], [0, 0]], np.float32)
    found = served.predict(rows)
    assert list(found.columns) == ["prediction"]
    np.testing.assert_allclose(found["prediction"], model.predict(rows)[0])


def test_a_model_is_logged_and_registered(tracking: Any) -> None:
    import sparkdl_bench.mlflow as flavour

    model = perceptron()
    with mlflow.start_run():
        logged = flavour.log_model(model, name="net", registered_model_name="nets")
    rows = np.array([[1.0, 2.0]], np.float32)
    for uri in (logged.model_uri, "models:/nets/1"):
        assert mlflow.pyfunc.load_model(uri).predict(rows)["prediction"].tolist() == model.predict(rows)[0].tolist()
        np.testing.assert_array_equal(flavour.load_model(uri).scores(rows), model.scores(rows))


def test_other_nets_are_served_by_onnx_runtime_in_a_process_without_spark(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    import sparkdl_bench.mlflow as flavour

    name = "lenet"
    model = model_of(name)
    flavour.save_model(model, tmp_path / "saved")
    assert "onnxruntime" in (tmp_path / "saved" / "requirements.txt").read_text()
    rows = np.random.default_rng(5).random((3, *model.shape), dtype=np.float32)
    np.save(tmp_path / "rows.npy", rows)
    program = (
        "import mlflow.pyfunc, numpy\n"
        f"served = mlflow.pyfunc.load_model({str(tmp_path / 'saved')!r})\n"
        f"found = served.predict(numpy.load({str(tmp_path / 'rows.npy')!r}))\n"
        f"numpy.save({str(tmp_path / 'found.npy')!r}, numpy.stack(found['probability']))\n"
        "import pyspark; assert pyspark.SparkContext._gateway is None\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, capture_output=True)
    found = np.load(tmp_path / "found.npy")
    assert found.shape == (3, model.classes)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


def test_the_page_about_mlflow_runs(tracking: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    perceptron().save("my-model")
    page = (ROOT / "docs" / "how-to" / "mlflow.md").read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "mlflow.md", "exec"), found)
    assert {"logged", "served", "again"} <= set(found), "every part of the page has run"
