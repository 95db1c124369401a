"""What a Python worker of Spark has of its executor's JVM: the driver's ear, the other ranks, process groups.

`connect` is for `sparkdl_bench.launch`, which calls it in each task; code inside a launch finds it by `current()`.
"""

from sparkdl_bench.worker.endpoint import Endpoint, connect, current
from sparkdl_bench.worker.group import Group
from sparkdl_bench.worker.rows import Rows, Taken

__all__ = ["Endpoint", "Group", "Rows", "Taken", "connect", "current"]
