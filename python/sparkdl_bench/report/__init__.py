"""Reports: `load` reads results, `analysis` makes numbers of them, `words` sentences, `plots` pictures, `html` a page.

`formats` writes the other forms. docs/reference/compare.md is the description for users.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Module(ModuleType):
    """`sparkdl_bench.report(step=…)` is a function of the package's, and importing this one takes its name."""

    def __call__(self, **numbers: Any) -> None:
        from sparkdl_bench.launching.reporting import report

        report(**numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        """By its name, as all modules: functions that use `sparkdl_bench.report` travel to the executors."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Module
