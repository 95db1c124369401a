"""What `torch.compile` leaves alone: the code of this backend, which a compiled DistributedDataParallel calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

_PACKAGES = ("sparkdl_bench.torch", "sparkdl_bench.worker")


def keep_out() -> None:
    """On releases of PyTorch whose compiler would fail at it: at the options of an operation, which are of C++ (2.3).

    Newer ones take the code as it is, and have no such switch.
    """
    skip = getattr(torch._C._dynamo.eval_frame, "skip_code", None)
    if skip is not None:
        for code in _codes_of_package():
            skip(code)


def _codes_of_package() -> Iterator[CodeType]:
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGES) and isinstance(module, ModuleType):
            for value in vars(module).values():
                if getattr(value, "__module__", None) == name:
                    yield from _codes_of(value)


def _codes_of(value: Any) -> Iterator[CodeType]:
    if isinstance(value, FunctionType):
        yield from _with_inner(value.__code__)
    elif isinstance(value, property):
        yield from (code for each in (value.fget, value.fset) for code in _codes_of(each))
    elif isinstance(value, type):
        for each in vars(value).values():
            if not isinstance(each, type):
                yield from _codes_of(each)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
