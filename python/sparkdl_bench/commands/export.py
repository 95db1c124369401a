"""`sparkdl-bench export`: a trained model as a file of another program."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("export", short_help="Write a trained model for other programs: ONNX, PyTorch, safetensors, NumPy.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="File to write: .onnx, .safetensors, .pt, .pth or .npz; of a PyTorch module .pt2, .pt, .pth or .npz.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["npz", "onnx", "safetensors", "state-dict"]),
    help="[default: by OUT's suffix]",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show stack traces.")
def command(model: Path, output: Path, form: str | None) -> None:
    """Write the trained MODEL, a folder that `run` or FitResult.save wrote, as a file for other programs.

    ONNX holds all from stored rows to probabilities, the other formats hold the weights by name.
    """
    from sparkdl_bench import prediction

    prediction.load_model(model).export(output, form)
    click.echo(f"exported  {output}")
