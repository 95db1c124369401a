"""`sparkdl-bench predict`: what a trained model says of rows in files."""

from __future__ import annotations

import csv
import math
import posixpath
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from sparkdl_bench import preflight
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.nearest import listed, near_file, suggestion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkdl_bench.prediction import Model

_FORMATS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".json": "json", ".libsvm": "libsvm", ".svm": "libsvm"}


@click.command("predict", short_help="Predict the rows of files with a trained model.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data")
@click.option("-o", "--output", required=True, metavar="OUT", help="Folder to write, on any file system of Hadoop's.")
@click.option("--from", "source", type=click.Choice(sorted(set(_FORMATS.values()))), help="[default: by DATA's suffix]")
@click.option("--to", "target", type=click.Choice(["csv", "parquet"]), help="[default: csv for OUT.csv, else parquet]")
@click.option("--features", multiple=True, metavar="COLUMN", help="Columns of the features. [default: as trained]")
@click.option("--header/--no-header", default=True, show_default=True, help="Whether CSV files begin with names.")
@click.option(
    "--handle-invalid",
    type=click.Choice(["error", "skip", "keep"]),
    default="error",
    show_default=True,
    help="Rows without valid values: end the command, leave them out, or keep them without predictions.",
)
@click.option("--batch", type=click.IntRange(1), default=256, show_default=True, help="Rows computed at once.")
@click.option("--master", help="A cluster's master. [default: spark-defaults.conf, else this host's cores]")
@click.option("--overwrite", is_flag=True, help="Replace OUT where it is there.")
@click.option("--debug", is_flag=True, help="Show Spark's log and stack traces.")
def command(
    model: Path,
    data: str,
    output: str,
    source: str | None,
    target: str | None,
    features: tuple[str, ...],
    header: bool,
    handle_invalid: str,
    batch: int,
    master: str | None,
    overwrite: bool,
    debug: bool,
) -> None:
    """Predict the class of each row of DATA (of a regression its number) with the trained MODEL, a folder that `run` or
    FitResult.save wrote.

    DATA is a CSV, Parquet, JSON or LIBSVM file or folder. OUT gets its columns and `prediction`: the class's number, or
    what a regression predicts. Of classes there are `predicted_label` where they have names, and their probabilities
    too: a vector in Parquet, a column for each class in CSV.
    """
    from sparkdl_bench import prediction, session
    from sparkdl_bench.progress import tell

    # All this before a JVM starts.
    trained = prediction.load_model(model)
    _check_paths(data, output, model, overwrite)
    form = source or _FORMATS.get(_suffix(data), "parquet")
    columns = list(features) or (["features"] if form == "libsvm" else [])
    _check_columns(_columns_of(data, form, header), data, columns, trained)
    written = target or ("csv" if output.lower().endswith(".csv") else "parquet")
    options = {"spark.app.name": "sparkdl-bench predict"}
    if master is not None or "spark.master" not in session.standing_options():
        options["spark.master"] = "local[*]" if master is None else master
        preflight.check_master(options["spark.master"])
    with tempfile.TemporaryFile() as log:
        tell("starting the driver's JVM")
        _, settings = session.start_jvm(options, None if debug else log)
        with session.open_session(settings, tell) as spark:
            tell("reading the rows' columns")
            rows = _read(spark, data, form, header, trained)
            _check_columns(rows.columns, data, columns, trained)
            predicted = trained.transform(
                rows,
                columns,
                raw_prediction="",
                label="predicted_label" if trained.labels else "",
                batch=batch,
                handle_invalid=handle_invalid,
            )
            tell("predicting")
            _write(predicted, trained, output, written, overwrite)
    other = "" if target or written == "csv" else "; --to csv writes CSV"
    click.echo(f"{output}  predictions, a folder of {'CSV' if written == 'csv' else 'Parquet'} files{other}")


def _suffix(path: str) -> str:
    """Of the file before it was packed."""
    return Path(path.lower().removesuffix(".gz")).suffix


def _delimiter(path: str) -> str:
    """What divides the columns of a CSV file: of one on this host as `try` and `init` find it, else by its suffix."""
    from sparkdl_bench.comparison import look_csv

    local = preflight.local_path(path)
    if local is not None and local.is_file():
        with look_csv.text(local) as lines:
            return look_csv.delimiter_of(lines.readline())
    return "\t" if _suffix(path) == ".tsv" else ","


def _check_paths(data: str, output: str, model: Path, overwrite: bool) -> None:
    """What is wrong with files of this host; and an output that would be written over what is read."""
    rows, out = preflight.local_path(data), preflight.local_path(output)
    if rows is not None and not any(mark in data for mark in "*?[{,") and not rows.exists():
        raise ConfigurationError(
            f"There is no file or folder '{data}'.{near_file(rows)} Name the rows to predict, or give the URI of "
            "another file system (hdfs://…)."
        )
    is_pattern = rows is None or not rows.exists()
    for what, read, may_match in (("the rows to predict", data, is_pattern), ("the model", str(model), False)):
        if _overlap(read, output, may_match):
            raise ConfigurationError(
                f"The output '{output}' and {what}, '{read}', are one place or lie in each other, so that the "
                "predictions would be written over what is read. Name an output folder outside it."
            )
    if out is not None and out.exists() and not overwrite:
        raise ConfigurationError(f"'{output}' is there already. Name another folder, or --overwrite this one.")


def _overlap(read: str, written: str, is_pattern: bool) -> bool:
    """Whether two places are one, or one lies in the other.

    Args:
        is_pattern: whether `read` may have Hadoop's marks (`*`, `?`, `[…]`, `{…}`), which stand for many names.
    """
    (system, parts), (other, others) = _place(read), _place(written)
    # A URI without an authority, hdfs:///rows, means one that only Hadoop's configuration knows.
    if system[0] != other[0] or (system[1] and other[1] and system[1] != other[1]):
        return False
    if not is_pattern:
        return all(part == found for part, found in zip(parts, others, strict=False))
    patterns = [re.sub(r"\{.*?\}", "*", part) for part in parts]
    return all(fnmatchcase(found, part) for part, found in zip(patterns, others, strict=False))


def _place(text: str) -> tuple[tuple[str, str], tuple[str, ...]]:
    """A place's file system (scheme, authority; none: this host or Hadoop's default) and path, both normalised."""
    local = preflight.local_path(text)
    if local is None and (uri := urlsplit(text)).scheme:
        # Not urlsplit's path, which ends at a question mark.
        path = re.sub(r"^[^:]*:(//[^/]*)?", "", text)
        return (uri.scheme.lower(), uri.netloc.lower()), PurePosixPath(posixpath.normpath(f"/{path.lstrip('/')}")).parts
    return ("", ""), (local or Path(text)).resolve().parts


def _columns_of(path: str, form: str, header: bool) -> list[str] | None:
    """The columns of rows on this host; None where only Spark can tell, or tells it sooner."""
    local = preflight.local_path(path)
    if local is None or not local.is_file():
        return None
    if form == "csv":
        return _columns_of_csv(path, local, header)
    return _columns_of_parquet(local) if form == "parquet" else None


def _columns_of_csv(path: str, file: Path, header: bool) -> list[str] | None:
    from sparkdl_bench.comparison import look_csv

    with look_csv.text(file) as lines:
        head = next((line for line in lines if line.strip()), "")
    names = next(csv.reader([head], delimiter=_delimiter(path)), [])
    if not header:
        return [f"_c{place}" for place in range(len(names))]
    # Spark names columns itself that have no name, or the name of another.
    return names if all(names) and len({name.lower() for name in names}) == len(names) and "\\" not in head else None


def _columns_of_parquet(file: Path) -> list[str] | None:
    try:
        from pyarrow import parquet
    except ImportError:
        return None
    with suppress(Exception):  # what is wrong with the file Spark says
        return [str(name) for name in parquet.read_schema(file).names]
    return None


def _check_columns(names: Sequence[str] | None, data: str, asked: Sequence[str], model: Model) -> None:
    """Refuses rows without the columns of the features.

    Args:
        names: of the rows' columns; None where they are not known yet.
        asked: the features that the command names; none: those that the model was trained on.
    """
    wanted = asked or model.columns
    missing = [] if names is None else [name for name in wanted if name not in names]
    if not names or not missing:
        return
    why = "named as a feature" if asked else "one of those that the model was trained on"
    remedy = (
        "Name others with --features."
        if asked
        else "Rename the data's columns as they were then, or name each feature's column, in the model's order, with "
        "--features."
    )
    others = f" ({listed(missing[1:], 5)} {'is' if len(missing) == 2 else 'are'} missing, too)" if missing[1:] else ""
    raise ConfigurationError(
        f"'{data}' has no column '{missing[0]}', which is {why}{others}.{suggestion(missing[0], names)} {remedy} Its "
        f"columns are {listed(names, 20)}."
    )


def _read(spark: SparkSession, path: str, form: str, header: bool, model: Model) -> DataFrame:
    from pyspark.errors import PySparkException

    reader = spark.read.format(form)
    if form == "csv":
        reader = reader.options(header=header, inferSchema=True, sep=_delimiter(path))
    if form == "libsvm":
        reader = reader.options(numFeatures=math.prod(model.shape))
    try:
        return reader.load(path)
    except PySparkException as error:
        raise ConfigurationError(
            f"'{path}' cannot be read as {form}: {_first_line(error)} Name its format with --from, and give a file or "
            "a folder that Spark can see."
        ) from error


def _write(frame: DataFrame, model: Model, path: str, form: str, overwrite: bool) -> None:
    from pyspark.errors import PySparkException

    from sparkdl_bench import _jvm
    from sparkdl_bench.progress import tell

    shown = _flat(frame, model) if form == "csv" else frame
    writer = shown.write.format(form).mode("overwrite" if overwrite else "error")
    if form == "csv":
        writer = writer.options(header=True)
    try:
        _jvm.translated(lambda: _jvm.in_another_thread(lambda: writer.save(path), lambda: tell("still predicting")))
    except (PySparkException, SparkDLError) as error:
        if not overwrite:
            _remove_empty(frame.sparkSession, path)
        if isinstance(error, SparkDLError):
            raise
        raise ConfigurationError(
            f"The predictions cannot be written to '{path}': {_first_line(error)} Name another folder, or --overwrite "
            "this one."
        ) from error


def _remove_empty(spark: SparkSession, path: str) -> None:
    """Removes the folder that a write has made and a failure left without files: the next try would be refused."""
    jvm: Any = spark.sparkContext._jvm
    with suppress(Exception):  # of a driver or file system that is gone; the write's own error counts
        folder = jvm.org.apache.hadoop.fs.Path(path)
        system = folder.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        if system.exists(folder) and system.getContentSummary(folder).getFileCount() == 0:
            system.delete(folder, True)


def _flat(frame: DataFrame, model: Model) -> DataFrame:
    """With a column for each class's probability: CSV has no lists."""
    from pyspark.ml.functions import array_to_vector, vector_to_array
    from pyspark.sql import functions

    # Spark's functions fail at null, which a row without a prediction has.
    none = array_to_vector(functions.array().cast("array<double>"))
    own = ("probability", "prediction") if model.is_multilabel else ("probability",)
    lists = [
        field.name for field in frame.schema.fields if field.name not in own and field.dataType.typeName() not in _PLAIN
    ]
    if lists:
        raise ConfigurationError(
            f"Column '{lists[0]}' holds lists or other structures, and CSV has none. Write Parquet: --to parquet."
        )
    if model.is_regression:
        return frame
    names = model.labels or [str(index) for index in range(model.classes)]
    columns: list[Any] = []
    for each in own:
        values: Any = vector_to_array(functions.coalesce(functions.col(each), none))
        columns += [functions.get(values, index).alias(f"{each}_{name}") for index, name in enumerate(names)]
    return frame.select("*", *columns).drop(*own)


_PLAIN = {
    *("boolean", "byte", "short", "integer", "long", "float", "double", "decimal"),
    *("string", "varchar", "char", "date", "timestamp", "timestamp_ntz"),
}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["Spark gave no reason."])[0]
