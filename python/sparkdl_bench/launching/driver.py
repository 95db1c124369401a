"""`launch`: runs a function of the user's own as ranks, and keeps what became of it."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkdl_bench import session, signals
from sparkdl_bench.errors import Interrupted, RunFailedError, SparkDLError, WriteError
from sparkdl_bench.launching import display, plan
from sparkdl_bench.launching.display import Display
from sparkdl_bench.launching.follow import Launches, LostError, Watch, follow
from sparkdl_bench.launching.job import UNPICKLABLE, Job, loads
from sparkdl_bench.launching.plan import Plan
from sparkdl_bench.launching.record import LaunchRecord
from sparkdl_bench.launching.stage import Stage
from sparkdl_bench.results import RunResults
from sparkdl_bench.runner import Interruption, interruption
from sparkdl_bench.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CANCELLED = "the user cancelled the launch"


class LaunchResult(list[Any]):
    """What all ranks returned, by rank.

    Attributes:
        results_dir: `run.json`, `events.jsonl`, `summary.json`, and what each rank printed in `logs/`.
    """

    def __init__(self, values: Sequence[Any], results_dir: Path) -> None:
        super().__init__(values)
        self.results_dir = results_dir


def launch(
    train_fn: Callable[..., Any],
    spark: SparkSession,
    workers: int = 2,
    sync: str = "auto",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    timeout: float = 600.0,
    attempts: int = 1,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
    results: str | Path = "results",
    always_numbers: bool = False,
) -> LaunchResult:
    """Runs a training function of your own in `workers` Python workers of one Spark stage, all at once.

    Each call sees the environment variables that torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK, …) and a process group of
    `torch.distributed` that is ready; a call of `init_process_group` in it joins that group. What it prints appears
    here while it runs, each line with its rank, and `sparkdl_bench.report(step=…, loss=…)` shows and keeps numbers.

    Args:
        train_fn: called as `train_fn(*args, **kwargs)` by every rank. It travels by pickle, and so does what it
            returns.
        spark: a classic session with our jar, as `sparkdl_bench.configure` makes it.
        workers: number of ranks, each one Spark task; the session needs as many task slots.
        sync: how ranks exchange:

            - `auto`: `block-stream`;
            - `block-stream`, `tcp`, `ucx`, `mpi`: `torch.distributed` with the backend `sparkdl` over that transport
              (docs/reference/variants.md);
            - `gloo`: `torch.distributed` with its own backend, over ports that it opens itself;
            - `none`: no process group of PyTorch, which need not be there; for functions that exchange nothing, or
              NumPy's arrays by `sparkdl_bench.collective`, in-band as well.
        timeout: longest wait for another rank, at the start and within an operation of the group, seconds; and for
            task slots that other jobs hold.
        attempts: how often the function is started at most: again, on all ranks, where an executor was lost.
            `sparkdl_bench.launch_attempt()` counts from 0.
        settings: keys of a run for the backend `sparkdl`, such as `{"topology": "ring"}`; of `none` those of
            `sparkdl_bench.collective`, such as `{"transport": "tcp"}`.
        name: of the results folder; by default the function's.
        results: the folder that gets the folder `<time>-<name>` of this launch.
        always_numbers: whether to show reported numbers also where nobody sits at a terminal or notebook.

    Returns:
        what the ranks returned, by rank: a list with the attribute `results_dir`.

    Raises:
        ConfigurationError: session, arguments or function are not fit for it; no Spark job was started, unless only a
            rank could tell, such as where PyTorch is missing on an executor.
        RankFailedError: a rank raised an exception, or its process or executor was lost. All others were ended.
        RunFailedError: anything else kept the launch from its end.
        KeyboardInterrupt: Ctrl-C; all ranks were ended.
    """
    api = session.check_session(spark)
    checked = plan.plan(
        api,
        train_fn,
        args,
        kwargs or {},
        workers=workers,
        sync=sync,
        settings=settings or {},
        timeout_s=timeout,
        attempts=attempts,
        name=name,
    )
    plan.check_session_for(api, spark, workers)
    record = LaunchRecord.create(
        Path(results), checked.name, checked.function, checked.sync, checked.configuration, spark
    )
    with _kept(record), interruption() as interrupted, display.shown(workers, always_numbers) as shown:
        return LaunchResult(_run(api, checked, spark, record, shown, interrupted), record.folder)


@contextmanager
def _kept(record: LaunchRecord) -> Iterator[None]:
    """Whatever ends the launch, its record says how, and the error says where the record is."""
    # What a second signal, or a command that does not end in time, leaves behind.
    signals.at_last(lambda: RunResults(record.folder).close("cancelled", _CANCELLED))
    try:
        yield
    except KeyboardInterrupt:
        _close(record, "cancelled", _CANCELLED)
        raise
    except BaseException as error:
        _close(record, "failed", str(error))
        if isinstance(error, SparkDLError):
            error.args = (f"{error}\nWhat the launch left is in {record.folder}.",)
        raise
    _close(record, "success", None)
    signals.at_last(None)


def _close(record: LaunchRecord, status: str, error: str | None) -> None:
    try:
        record.close(status, error)
    except (OSError, WriteError) as unwritten:  # what the ranks returned counts, whatever becomes of the record
        sys.stderr.write(f"sparkdl-bench: The record of the launch could not be kept: {unwritten}\n")


def _run(
    api: Launches, checked: Plan, spark: Any, record: LaunchRecord, shown: Display, interrupted: Interruption
) -> list[Any]:
    for attempt in range(checked.attempts):
        try:
            return _attempt(api, checked, spark, record, shown, interrupted, attempt)
        except Interrupted as error:
            where = f"The launch was cancelled. What it wrote is in {record.folder}."
            raise Interrupted(error.exit_code - 128, where) from None
        except LostError as error:
            if attempt + 1 == checked.attempts:
                raise
            record.noticed("resubmitted", error.rank, str(error))
            shown.noticed(f"{error} Attempt {attempt + 2} of {checked.attempts} begins.")
            plan.check_session_for(api, spark, checked.workers)
    raise AssertionError("an attempt returns or raises")


def _attempt(
    api: Launches,
    checked: Plan,
    spark: Any,
    record: LaunchRecord,
    shown: Display,
    interrupted: Interruption,
    attempt: int,
) -> list[Any]:
    # An id of its own, so that nothing of an earlier attempt can reach it.
    launch_id = uuid.uuid4().hex
    job = Job(
        launch_id=launch_id,
        size=checked.workers,
        sync=checked.sync,
        timeout_s=checked.timeout_s,
        call=checked.call,
        version=__version__,
        attempt=attempt,
        attempts=checked.attempts,
        settings=checked.settings,
        sources=checked.sources,
    )
    api.launch_open(launch_id)
    try:
        stage = Stage(spark, job, f"sparkdl-bench launch {checked.function}")
        watch = Watch(checked.workers, record, shown)
        return _values(follow(api, launch_id, stage, watch, interrupted, checked.timeout_s), watch)
    finally:
        with suppress(SparkDLError):  # a JVM that has ended keeps nothing
            api.launch_close(launch_id)


def _values(answers: Sequence[tuple[int, str, bytes]], watch: Watch) -> list[Any]:
    """The ranks' results by rank."""
    values: dict[int, Any] = {}
    for rank, kind, data in answers:
        if kind == UNPICKLABLE:
            what, reason = loads(data)
            raise RunFailedError(
                f"Rank {rank} of {watch.size} on host {watch.place(rank).get('host')} ended well, but returned a "
                f"{what}, which cannot be pickled ({reason}). Return plain values, arrays or state_dicts, and save "
                "what is large to a file."
            )
        try:
            values[rank] = loads(data)
        except Exception as error:  # whatever the result's own class does when it is made again
            raise RunFailedError(
                f"Rank {rank} of {watch.size} ended well, but what it returned cannot be read at the driver "
                f"({type(error).__name__}: {error}). Return plain values, or install its module here, too."
            ) from error
    return [values[rank] for rank in sorted(values)]
