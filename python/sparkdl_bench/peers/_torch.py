"""The environment that every peer made of PyTorch shares: it is large (the x86-64 wheels bring the CUDA libraries)."""

from __future__ import annotations

from sparkdl_bench.peers._abilities import ALL_OPTIMIZERS, Abilities
from sparkdl_bench.peers._environment import Environment

TORCH = Environment(
    name="torch",
    requirements=("torch==2.15.0", "numpy==2.2.6"),
    imports=("torch", "numpy"),
    oldest_python=(3, 11),
    newest_python=(3, 13),
    disk_gb=5.4,
)

TRAINS = Abilities(ALL_OPTIMIZERS, schedules=True)
