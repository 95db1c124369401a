"""What a disturbed training must come to: the undisturbed run's bits, or an error that says its name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SAME = "same bits"
RESUMED = "resumed, same bits"
NAMED = "named error"
VIOLATION = "VIOLATION"
# What no error that was foreseen says.
_UNNAMED = (
    re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE),
    re.compile(r"^\s+at [\w.$/]+\(", re.MULTILINE),  # a frame of the JVM's
    re.compile(r"^Exception in thread", re.MULTILINE),
    re.compile(r"^Fatal Python error", re.MULTILINE),
    re.compile(r"This is a bug of sparkdl-bench"),
    re.compile(r"^# A fatal error has been detected by the Java Runtime", re.MULTILINE),
)
_PROGRESS = re.compile(r"\d+ s  ")
_MOST_SAID = 600  # characters


@dataclass(frozen=True)
class Ended:
    """What became of one training.

    Attributes:
        status: the command's exit status; None where it had to be stopped, because it did not end.
        said: its standard error.
        weights: SHA-256 of the trained weights; empty where there are none.
        summary: its `summary.json`; None where there is none.
        seconds: from its start to its end.
    """

    status: int | None
    said: str
    weights: str = ""
    summary: Mapping[str, Any] | None = None
    seconds: float = 0.0

    @property
    def workers_changed(self) -> bool:
        """Whether it went on with another number of workers, which sum in another order."""
        return bool(self.summary and self.summary.get("workers") != self.summary.get("workers_at_start"))


@dataclass(frozen=True)
class Expectation:
    """What the law demands of one fault.

    Attributes:
        weights: the undisturbed run's.
        parent_killed: the command itself is killed, so that it can say nothing; its run's summary names the error.
        whole_killed: nobody is left who could say or write anything.
        summary: a run that failed must leave its summary; not where its disk was full.
        may_refuse: what a resumed run is to read was damaged, so that it may refuse it by name.
        changed_workers: other bits are right where the run goes on with fewer workers.
    """

    weights: str
    parent_killed: bool = False
    whole_killed: bool = False
    summary: bool = True
    may_refuse: bool = False
    changed_workers: bool = False


@dataclass(frozen=True)
class Verdict:
    """The outcome, one of this module's four; why it is a violation; the error's sentence, where there is one."""

    outcome: str
    reason: str = ""
    error: str = ""

    @property
    def held(self) -> bool:
        return self.outcome != VIOLATION


@dataclass
class _Judging:
    expected: Expectation
    reasons: list[str] = field(default_factory=list)

    def bits(self, ended: Ended, who: str) -> None:
        """Of a run that ended well."""
        if ended.weights == self.expected.weights:
            return
        if self.expected.changed_workers and ended.workers_changed:
            return
        if not ended.weights:
            self.reasons.append(f"{who} ended well and left no weights")
            return
        self.reasons.append(f"{who} ended well with other weights than the undisturbed run")

    def error(self, ended: Ended, who: str) -> str:
        """Of a run that failed: its sentence."""
        if ended.status is None:
            self.reasons.append(f"{who} hung: it did not end within {ended.seconds:.0f} s")
            return told(ended.said)
        unnamed = any(pattern.search(ended.said) for pattern in _UNNAMED)
        return "" if unnamed else told(ended.said)


def judge(first: Ended, again: Ended | None, expected: Expectation, left: Sequence[str], came: bool = True) -> Verdict:
    """The verdict on one fault.

    Args:
        again: the run that went on from the first one's checkpoints, when the fault was over; None where none did.
        left: what stayed behind that must not.
        came: whether the fault did, before the run was over.
    """
    judging = _Judging(expected)
    error = ""
    if first.status == 0:
        judging.bits(first, "the run")
        outcome = SAME
    else:
        outcome = NAMED
        error = _failed(judging, first)
        if again is not None:
            error = _went_on(judging, again) or error
            outcome = RESUMED if again.status == 0 else NAMED
    if not came and first.status != 0:
        judging.reasons.append("the run failed before the fault came")
    if left:
        judging.reasons.append(f"left behind: {'; '.join(left)}")
    if judging.reasons:
        return Verdict(VIOLATION, ". ".join(judging.reasons), error or told(first.said))
    return Verdict(outcome, "", error)


def _failed(judging: _Judging, first: Ended) -> str:
    expected = judging.expected
    if expected.whole_killed and first.status is not None:
        return ""
    error = judging.error(first, "the run")
    if first.status is None:
        return error
    status = (first.summary or {}).get("status")
    if expected.parent_killed:
        error = str((first.summary or {}).get("error") or "") or (status if status == "cancelled" else "")
    if not error:
        judging.reasons.append(f"the run ended with status {first.status} and without a named error")
    if expected.summary and status in (None, "success", "done"):
        judging.reasons.append(f"the run failed, and its summary.json is missing or says {status}")
    return error


def _went_on(judging: _Judging, again: Ended) -> str:
    if again.status == 0:
        judging.bits(again, "the resumed run")
        return ""
    error = judging.error(again, "the resumed run")
    if again.status is not None:
        if not error:
            judging.reasons.append(f"the resumed run ended with status {again.status} and without a named error")
        elif not judging.expected.may_refuse:
            judging.reasons.append("the resumed run failed, though nothing disturbed it and its checkpoints are whole")
    return error


def told(said: str) -> str:
    """The last paragraph of standard error that is no progress."""
    lines = [line for line in said.splitlines() if line.strip() and not _PROGRESS.match(line)]
    return lines[-1][:_MOST_SAID] if lines else ""
