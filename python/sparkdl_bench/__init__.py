"""Train neural nets on a Spark cluster, with parameters that travel through Spark's own data plane.

`Trainer(model="mlp", data="digits", workers=2).fit(spark)` trains in a session that `configure(builder)` prepared.
"""

from sparkdl_bench.errors import ConfigurationError, DivergedError, RunCancelledError, RunFailedError, SparkDLError
from sparkdl_bench.saved import SavedModel, load
from sparkdl_bench.session import check_session, configure
from sparkdl_bench.trainer import FitResult, Trainer
from sparkdl_bench.version import __version__

__all__ = [
    "ConfigurationError",
    "DivergedError",
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
