"""`sparkdl-bench report`: what comparisons have measured, as one page, or in other forms."""

from __future__ import annotations

from pathlib import Path

import click

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import replace_text

_SUFFIX = {"html": ".html", "md": ".md", "csv": ".csv", "json": ".json", "png": "", "folder": ""}


@click.command("report", short_help="Make a page of comparisons, runs or `net` results.")
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file to write; a folder for png and folder.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_SUFFIX)),
    help="folder: report.md, its pictures, machine.json, the records. [default: by the ending of --output, else html]",
)
@click.option(
    "--target-accuracy",
    "target",
    type=float,
    help="Compare times until this share of the test rows was right, such as 0.95. [default: the comparison's own]",
)
@click.option("--debug", is_flag=True, help="Show stack traces.")
def command(
    results: tuple[Path, ...],
    output: Path | None,
    form: str | None,
    target: float | None,
    debug: bool,  # noqa: ARG001
) -> None:
    """Make a page of RESULTS: folders of `compare`, folders of runs, files of `net --json`, kept reports."""
    # Matplotlib, SciPy and statsmodels take a second to load, and other commands do without them.
    try:
        from sparkdl_bench.report import formats, html
        from sparkdl_bench.report.load import load
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("sparkdl_bench"):
            raise
        raise ConfigurationError(
            f"`sparkdl-bench report` needs the package '{error.name}', which is not installed here. The extra "
            "'report' brings all that it needs: pip install 'sparkdl-bench[report]'."
        ) from error

    chosen = form or _form_of(output)
    path = output or Path(f"report{_SUFFIX[chosen]}")
    found = load(results, target)
    if chosen == "png":
        written = formats.pictures(found, path)
        click.echo(f"{len(written)} pictures in {path}")
        return
    if chosen == "folder":
        written = formats.folder(found, path)
        pictures = sum(file.suffix == ".png" for file in written)
        click.echo(f"{path}: report.md, machine.json, records.json.gz, {pictures} pictures")
        return
    make = {"html": html.page, "md": formats.markdown, "csv": formats.comma_separated, "json": formats.as_json}[chosen]
    replace_text(path, make(found))
    click.echo(f"{path}, {path.stat().st_size / 1000:,.0f} kB")


def _form_of(output: Path | None) -> str:
    """The format that a file's ending says; a page where it has none."""
    if output is None or output.suffix.lower() in ("", ".htm"):
        return "html"
    ending = output.suffix.lower()
    if ending == ".png":
        raise ConfigurationError(
            f"A report has several pictures, and '{output}' is one file. Give --format png and a folder: "
            f"--format png --output {output.with_suffix('')}."
        )
    found = next((name for name, suffix in _SUFFIX.items() if suffix == ending), None)
    if found is None:
        raise ConfigurationError(
            f"No report is written as {output.suffix} ('{output}'). Valid endings: .html or .htm (one "
            "page), .md, .csv, .json. A PDF: open the page in a browser and print it. Or name the form with --format."
        )
    return found
