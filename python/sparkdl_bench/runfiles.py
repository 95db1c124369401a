"""Where run files and comparison files lie: at a path, or by name among those that come with this package."""

from __future__ import annotations

from pathlib import Path

from sparkdl_bench.jarfiles import checkout
from sparkdl_bench.nearest import listed, ranked, suggestion

_SUFFIX = ".toml"


def find(path: Path) -> Path:
    """The file at a path; or, where nothing is there, the one of that name among ours. A path that is neither stays."""
    if path.exists() or path.name != str(path):
        return path
    named = shipped().get(path.name.removesuffix(_SUFFIX))
    return named or path


def shipped() -> dict[str, Path]:
    """Ours by their names: the checkout's where this runs from one, else those that the wheel holds."""
    here = checkout()
    folders = [Path(__file__).resolve().parent / "conf" / "runs", *([here / "conf" / "runs"] if here else [])]
    return {file.stem: file for folder in folders for file in sorted(folder.glob(f"*{_SUFFIX}"))}


def nearby(path: Path) -> str:
    """What somebody may have meant by a path where no file is: a file beside it, or one of ours by its name."""
    beside = sorted(file.name for file in path.parent.glob(f"*{_SUFFIX}")) if path.parent.is_dir() else []
    bare = path.name == str(path) and path.suffix != _SUFFIX
    if bare and (near := suggestion(path.stem, [Path(name).stem for name in beside], quote="")):
        return f" Did you mean '{near.removeprefix(' Did you mean ').removesuffix('?')}{_SUFFIX}'?"
    if beside and not bare:
        # By their stems: names with one ending are all a little alike.
        found = [f"{stem}{_SUFFIX}" for _, stem in ranked(path.stem, [Path(name).stem for name in beside])]
        near = suggestion(path.stem, [Path(found[0]).stem]) and f" Did you mean '{path.parent / found[0]}'?"
        return f"{near} '{path.parent}' holds {listed(found, 5)}."
    near = suggestion(path.stem, shipped())
    return f"{near} That file comes with sparkdl-bench and goes by its name." if near else ""
