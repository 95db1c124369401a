"""Labs: several hosts on one Linux machine, with links and processors of a stated speed, and a Spark cluster on them.

A lab is made of network namespaces: one for each host, and one, the gateway, that holds the switch between them.
Nothing of it is reachable from outside, or reaches outside. The gateway is the cluster's edge node: master, name node
and drivers run there, and a command with `--master lab:NAME` too.

`up` writes down what it is about to make before it makes it, so that `down` finds all of it also after a crash.
"""

from __future__ import annotations

from sparkdl_bench.lab.making import down, obstacle, up
from sparkdl_bench.lab.state import Lab, Plan, find, names

__all__ = ["Lab", "Plan", "down", "find", "names", "obstacle", "up"]
