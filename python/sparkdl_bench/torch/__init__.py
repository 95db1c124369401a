"""The backend "sparkdl" of `torch.distributed`: process groups whose bytes travel through Spark's own data plane.

Inside `sparkdl_bench.launch` the group is ready. By hand, in a Python worker that has an endpoint:

    from sparkdl_bench import torch as sparkdl_torch
    sparkdl_torch.attach(endpoint, {"transport": "auto"})
    torch.distributed.init_process_group("sparkdl", store=torch.distributed.HashStore(), rank=rank, world_size=size)

No port is opened: groups find each other over the driver, so the store is this process's own.
"""

from sparkdl_bench.torch.backend import BACKEND, attach, register
from sparkdl_bench.torch.synchronizer import Synchronizer
from sparkdl_bench.torch.trained import ModuleModel

__all__ = ["BACKEND", "ModuleModel", "Synchronizer", "attach"]

register()
