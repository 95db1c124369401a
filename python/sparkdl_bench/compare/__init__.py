"""Comparisons: one file says what varies, every cell of it is trained several times, and all that came out is kept.

`plan` reads the file, `cells` makes the cells and their order, `store` keeps what was measured, `execute` trains one
cell, `loop` all of them; `call` is the way in from Python, `look` finds out what somebody's data are. The description
for users: docs/reference/compare.md.

The package can be called: `sparkdl_bench.compare(data=…)` is `call.compare`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkdl_bench.compare.call import ComparisonResult


class _Callable(ModuleType):
    def __call__(self, *data: Any, **settings: Any) -> "ComparisonResult":
        from sparkdl_bench.compare import call

        return call.compare(*data, **settings)


sys.modules[__name__].__class__ = _Callable
