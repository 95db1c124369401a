"""What `torch.compile` leaves alone: the code of this backend, which a compiled DistributedDataParallel calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

_PACKAGES = ("sparkdl_bench.torch", "sparkdl_bench.worker")


def keep_out() -> None:
    """The compiler would fail at it: at the options of an operation, which are of C++ (2.3), and at what our group has
    beside PyTorch's own members (2.15, where groups are objects that the compiler may not look into).
    """
    skip = _skipping()
    if skip is not None:
        for code in _codes_of_package():
            skip(code)


def _skipping() -> Callable[[CodeType], None] | None:
    """What makes the compiler leave a function, and all that it calls, as it is.

    By C++ alone, as importing `torch._dynamo` takes a second.
    """
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        return lambda code: frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    old: Callable[[CodeType], None] | None = getattr(frames, "skip_code", None)
    return old


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
