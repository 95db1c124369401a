"""Train neural nets on a Spark cluster, with parameters that travel through Spark's own data plane.

`Trainer(model="mlp", data="digits", workers=2).fit(spark)` trains in a session that `configure(builder)` prepared.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkdl_bench.errors import ConfigurationError, RunCancelledError, RunFailedError, SparkDLError
    from sparkdl_bench.saved import SavedModel, load
    from sparkdl_bench.session import check_session, configure
    from sparkdl_bench.trainer import FitResult, Trainer
    from sparkdl_bench.version import __version__

# Loaded when asked for: NumPy and the rest take most of a second, and a command handles signals before that.
_MODULES = {
    "errors": ("ConfigurationError", "RunCancelledError", "RunFailedError", "SparkDLError"),
    "saved": ("SavedModel", "load"),
    "session": ("check_session", "configure"),
    "trainer": ("FitResult", "Trainer"),
    "version": ("__version__",),
}

__all__ = [
    "ConfigurationError",
    "FitResult",
    "RunCancelledError",
    "RunFailedError",
    "SavedModel",
    "SparkDLError",
    "Trainer",
    "__version__",
    "check_session",
    "configure",
    "load",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
