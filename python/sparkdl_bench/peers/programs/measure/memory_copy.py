"""The floor of any all-reduce inside one machine: copying the same bytes once, from one buffer to another."""

from __future__ import annotations

import numpy as np

from ._harness import read_arguments, time_steps, write


def main() -> None:
    case, out = read_arguments()
    source = np.arange(case["elements"], dtype=np.float32)
    target = np.full(case["elements"], -1, np.float32)
    samples_ms = time_steps(lambda _: np.copyto(target, source), case["warmup"], case["iterations"])
    write(
        out, samples_ms, {"correct": bool(np.array_equal(source, target)), "numpy": np.__version__, "channel": "memory"}
    )


if __name__ == "__main__":
    main()
