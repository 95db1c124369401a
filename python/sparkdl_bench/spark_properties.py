"""Names of Spark properties that people set, to tell what somebody meant who mistypes one.

Spark takes any name and says nothing, and plug-ins bring names of their own: so a name that is not here is only doubted
where it is nearly one of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_NEARLY = 0.94
_NAMES = """
spark.app.name spark.authenticate spark.authenticate.secret spark.barrier.sync.timeout spark.blockManager.port
spark.broadcast.blockSize spark.cores.max spark.default.parallelism spark.driver.bindAddress
spark.driver.blockManager.port spark.driver.cores spark.driver.extraClassPath spark.driver.extraJavaOptions
spark.driver.extraLibraryPath spark.driver.host spark.driver.maxResultSize spark.driver.memory
spark.driver.memoryOverhead spark.driver.memoryOverheadFactor spark.driver.port spark.dynamicAllocation.enabled
spark.dynamicAllocation.initialExecutors spark.dynamicAllocation.maxExecutors spark.dynamicAllocation.minExecutors
spark.eventLog.dir spark.eventLog.enabled spark.excludeOnFailure.enabled spark.executor.cores
spark.executor.extraClassPath spark.executor.extraJavaOptions spark.executor.extraLibraryPath
spark.executor.heartbeatInterval spark.executor.instances spark.executor.memory spark.executor.memoryOverhead
spark.executor.memoryOverheadFactor spark.files spark.io.encryption.enabled spark.jars spark.jars.excludes
spark.jars.ivy spark.jars.packages spark.jars.repositories spark.kryo.registrator spark.local.dir
spark.locality.wait spark.log.level spark.master spark.memory.fraction spark.memory.offHeap.enabled
spark.memory.offHeap.size spark.memory.storageFraction spark.metrics.conf spark.metrics.namespace
spark.network.crypto.enabled spark.network.timeout spark.plugins spark.port.maxRetries spark.pyspark.driver.python
spark.pyspark.python spark.rpc.askTimeout spark.rpc.message.maxSize
spark.scheduler.maxRegisteredResourcesWaitingTime spark.scheduler.minRegisteredResourcesRatio spark.scheduler.mode
spark.serializer spark.shuffle.compress spark.shuffle.manager spark.shuffle.service.enabled spark.speculation
spark.ssl.enabled spark.submit.deployMode spark.submit.pyFiles spark.task.cpus spark.task.maxFailures
spark.ui.enabled spark.ui.port spark.ui.showConsoleProgress spark.yarn.am.memory spark.yarn.archive spark.yarn.jars
spark.yarn.queue
"""
KNOWN = frozenset(_NAMES.split())


def doubts(names: Iterable[str]) -> list[str]:
    """A line for each name that is nearly a known one."""
    found = []
    for name in names:
        if name in KNOWN:
            continue
        near = get_close_matches(name, KNOWN, 1, _NEARLY)
        if near:
            found.append(
                f"The Spark property '{name}' is none that Spark documents. Did you mean '{near[0]}'? Spark gets it as "
                "it is written, and says nothing where it knows no such name."
            )
    return found
