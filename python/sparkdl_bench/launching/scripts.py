"""A script as `train_fn`: run unchanged, as `python script.py` does."""

from __future__ import annotations

import hashlib
import io
import os
import runpy
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError

_MOST_BYTES = 20 << 20


@dataclass(frozen=True)
class Script:
    """A script on its way to the ranks.

    Attributes:
        path: absolute, on the driver's host.
        folder: where it was started from.
        digest: of its bytes, so that a host with another file there does not run that.
        archive: the Python files of its folder, zipped, for hosts that do not have them.
    """

    path: str
    folder: str
    digest: str
    archive: bytes
    arguments: tuple[str, ...]

    @property
    def shown_name(self) -> str:
        return Path(self.path).name

    def __call__(self) -> None:
        """Runs it as `__main__`, its folder on the import path. What it imports from there is forgotten after."""
        with self._here() as path:
            sys.path.insert(0, str(path.parent))
            sys.argv[:] = [str(path), *self.arguments]
            if Path(self.folder).is_dir():
                os.chdir(self.folder)
            try:
                runpy.run_path(str(path), run_name="__main__")
            finally:
                forget_modules(path.parent)

    @contextmanager
    def _here(self) -> Iterator[Path]:
        there = Path(self.path)
        if there.is_file() and _digest(there) == self.digest:
            yield there
            return
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-") as folder:
            with zipfile.ZipFile(io.BytesIO(self.archive)) as files:
                files.extractall(folder)  # made by the driver of this very job
            yield Path(folder) / there.name


def read(path: Path, arguments: Sequence[str]) -> Script:
    """Reads a script and the Python files beside it.

    Raises:
        ConfigurationError: it is not there, is no Python, or its folder holds more than 20 MiB of Python files.
    """
    script = path.expanduser().absolute()
    if not script.is_file():
        what = "is a folder" if script.is_dir() else "is not there"
        raise ConfigurationError(f"The script '{path}' {what}. Give the path of a Python file.")
    try:
        compile(script.read_bytes(), str(script), "exec")
    except (SyntaxError, ValueError) as error:
        raise ConfigurationError(f"The script '{path}' is not Python: {error}. Nothing was started.") from error
    except OSError as error:
        raise ConfigurationError(f"The script '{path}' cannot be read: {error.strerror}.") from error
    return Script(str(script), str(Path.cwd()), _digest(script), _zipped(script), tuple(arguments))


def forget_modules(folder: Path) -> None:
    """Forgets modules of a folder: the next script of this Python worker may have others of the same names."""
    inside = str(folder) + os.sep
    for name, module in list(sys.modules.items()):
        if name != "__main__" and str(getattr(module, "__file__", None) or "").startswith(inside):
            del sys.modules[name]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _zipped(script: Path) -> bytes:
    """The script, the Python files beside it, and the packages there."""
    files = {script, *script.parent.glob("*.py")}
    for package in script.parent.glob("*/__init__.py"):
        files.update(package.parent.rglob("*.py"))
    size = 0
    data = io.BytesIO()
    # Files may be older than any that an archive can hold: builds that are to be the same again set their time to 0.
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for file in sorted(each for each in files if each.is_file()):  # no links of an editor's that lead nowhere
            try:
                size += file.stat().st_size
                if size > _MOST_BYTES:
                    raise ConfigurationError(
                        f"The folder of the script '{script}' holds more than {_MOST_BYTES >> 20} MiB of Python files, "
                        "and they travel to every worker. Put the script into a folder with the files that it needs."
                    )
                archive.write(file, file.relative_to(script.parent))
            except OSError as error:
                raise ConfigurationError(
                    f"'{file}', which lies beside the script and would travel to every worker, cannot be read: "
                    f"{error.strerror}. Make it readable, or put the script into a folder of its own."
                ) from error
    return data.getvalue()
