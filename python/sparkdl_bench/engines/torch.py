"""Every layer kind in PyTorch with its autograd: an oracle for gradients, and the yardstick of one process."""

from __future__ import annotations

import platform
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np

from sparkdl_bench.engines import Batch, EngineVariant, Evaluation, Memory, Values
from sparkdl_bench.engines._losses import CROSS_ENTROPY, Loss
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.models import INPUT, Layer, ModelSpec, initializers

Tensor = Any


class TorchEngine:
    """See `Engine`. On the CPU its properties are the flat buffers themselves.

    On a GPU the flat buffers lie there, and the properties are arrays of the host: parameters and statistics, which may
    be written to, are copied in when a step or an evaluation begins; statistics are copied out when a step ends, and
    gradients when they are asked for.

    Args:
        device: `cpu`, `cuda` (the first GPU) or `cuda:N`.
        memory: the host's arrays; None: its own, with the initial weights of `seed`.
        loss: what training makes small.

    Raises:
        ConfigurationError: a layer of a kind that it does not have; a device that this PyTorch does not find.
    """

    def __init__(
        self,
        spec: ModelSpec,
        seed: int,
        double: bool,
        device: str = "cpu",
        memory: Memory | None = None,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        torch = _torch()
        self._device = _found(device)
        for layer in spec.layers:
            if layer.kind not in _FORWARD:
                raise ConfigurationError(
                    f"The engine 'torch' has no layer of kind '{layer.kind}' (layer '{layer.name}'); it has: "
                    f"{', '.join(sorted(_FORWARD))}."
                )
        self._spec, self._seed, self._loss = spec, seed, loss
        memory = memory or Memory.fresh(spec, seed, double)
        self._host_parameters: Values = memory.parameters
        self._host_statistics: Values = memory.statistics
        self._host_gradients: Values = memory.gradients
        if self._device.type == "cuda":
            host = (self._host_parameters, self._host_statistics, self._host_gradients)
            weakref.finalize(self, _known_to_gpu(host, self._device))
        # On the CPU the same memory.
        self._flat = torch.from_numpy(self._host_parameters).to(self._device)
        self._flat_statistics = torch.from_numpy(self._host_statistics).to(self._device)
        self._gradients = torch.from_numpy(self._host_gradients).to(self._device)
        self._tensors: dict[str, Tensor] = {}
        for place in spec.parameters:
            span = slice(place.offset, place.offset + place.length)
            tensor = self._flat[span].view(place.shape).requires_grad_()
            tensor.grad = self._gradients[span].view(place.shape)
            self._tensors[place.name] = tensor
        self._statistics = {
            place.name: self._flat_statistics[place.offset : place.offset + place.length] for place in spec.statistics
        }

    @property
    def facts(self) -> Mapping[str, str]:
        torch = _torch()
        gpu = {"gpu": str(torch.cuda.get_device_name(self._device))} if self._device.type == "cuda" else {}
        return {
            "device": str(self._device),
            **gpu,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "torch.threads": str(torch.get_num_threads()),
        }

    @property
    def parameters(self) -> Values:
        return self._host_parameters

    @property
    def gradients(self) -> Values:
        self._copy(self._gradients, self._host_gradients, to_host=True)
        return self._host_gradients

    @property
    def statistics(self) -> Values:
        return self._host_statistics

    def step(self, batch: Batch, weight: float) -> float:
        self._take_in()
        self._gradients.zero_()
        with self._exact():
            loss = self._loss_sum(self._forward(batch, training=True), batch)
            (loss * weight).backward()
        self._copy(self._flat_statistics, self._host_statistics, to_host=True)
        return float(loss.item())

    def evaluate(self, batch: Batch) -> Evaluation:
        torch = _torch()
        self._take_in()
        with torch.no_grad(), self._exact():
            logits = self._forward(batch, training=False)
            loss = self._loss_sum(logits, batch)
        scores: Values = logits.cpu().numpy()
        rows, correct = self._loss.measured(scores, batch.labels)
        return Evaluation(rows, float(loss.item()), correct, scores)

    @property
    def _ignored(self) -> int:
        """The label of rows that do not count; -100, which no row has, where all do."""
        return -100 if self._loss.ignored_label is None else self._loss.ignored_label

    def _loss_sum(self, outputs: Tensor, batch: Batch) -> Tensor:
        torch = _torch()
        labels, functional = torch.from_numpy(batch.labels).to(self._device), torch.nn.functional
        if self._loss.is_binary:
            labels = labels.to(outputs.dtype).reshape(outputs.shape)
            counted = labels != self._ignored
            losses = functional.binary_cross_entropy_with_logits(outputs, labels.where(counted, 0), reduction="none")
            return self._weighed(losses.where(counted, 0).mean(dim=1), batch)
        if not self._loss.has_numbers:
            weights = self._loss.class_weights
            factors = torch.tensor(weights, dtype=outputs.dtype, device=self._device) if weights else None
            losses = functional.cross_entropy(outputs, labels, factors, ignore_index=self._ignored, reduction="none")
            return self._weighed(losses, batch)
        labels = labels.to(outputs.dtype).unsqueeze(1)
        if self._loss.name == "huber":
            return self._weighed(
                functional.huber_loss(outputs, labels, reduction="none", delta=self._loss.delta), batch
            )
        of = functional.mse_loss if self._loss.name == "mean-squared" else functional.l1_loss
        return self._weighed(of(outputs, labels, reduction="none"), batch)

    def _weighed(self, losses: Tensor, batch: Batch) -> Tensor:
        """The sum of the rows' losses, each times its weight."""
        if batch.weights is None:
            return losses.sum()
        weights = _torch().from_numpy(batch.weights).to(self._device).to(losses.dtype)
        return (losses.reshape(len(batch.labels), -1).sum(dim=1) * weights).sum()

    def predict(self, batch: Batch) -> Values:
        self._take_in()
        with _torch().no_grad(), self._exact():
            scores: Values = self._forward(batch, training=False).cpu().numpy()
        return scores

    def _take_in(self) -> None:
        """What was written to the host's arrays since the last step."""
        self._copy(self._flat, self._host_parameters, to_host=False)
        self._copy(self._flat_statistics, self._host_statistics, to_host=False)

    def _copy(self, tensor: Tensor, host: Values, to_host: bool) -> None:
        torch = _torch()
        if self._device.type == "cpu":
            return  # the same memory
        with torch.no_grad():
            if to_host:
                torch.from_numpy(host).copy_(tensor)
            else:
                tensor.copy_(torch.from_numpy(host))

    def _exact(self) -> AbstractContextManager[Any]:
        """Products and convolutions on a GPU in full fp32, whatever the process or its environment asks for.

        By default PyTorch rounds what convolutions multiply to 10 bits there (TF32), and in NVIDIA's containers, which
        set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, what matrix products do.
        """
        return nullcontext() if self._device.type == "cpu" else _in_full_precision()

    def _forward(self, batch: Batch, training: bool) -> Tensor:
        torch = _torch()
        shape = (len(batch.labels), *self._spec.input_shape)
        values = {INPUT: torch.from_numpy(batch.features).to(self._flat).reshape(shape)}
        for index, layer in enumerate(self._spec.layers):
            context = _Context(self, layer, index, batch, training)
            values[layer.name] = _FORWARD[layer.kind](context, [values[name] for name in layer.inputs])
        return values[self._spec.layers[-1].name].reshape(len(batch.labels), -1)


class _Context:
    """What a layer's forward function reads."""

    def __init__(self, engine: TorchEngine, layer: Layer, index: int, batch: Batch, training: bool) -> None:
        self.engine, self.layer, self.index, self.batch, self.training = engine, layer, index, batch, training

    def parameter(self, suffix: str) -> Tensor | None:
        return self.engine._tensors.get(f"{self.layer.name}.{suffix}")

    def statistic(self, suffix: str) -> Tensor:
        return self.engine._statistics[f"{self.layer.name}.{suffix}"]

    @property
    def window(self) -> dict[str, Any]:
        """Arguments of a pooling layer."""
        kernel = self.layer.integer("kernel")
        return {
            "kernel_size": kernel,
            "stride": self.layer.integer("stride", kernel),
            "padding": self.layer.integer("padding", 0),
            "ceil_mode": bool(self.layer.integer("ceil", 0)),
        }


def _linear(context: _Context, inputs: Sequence[Tensor]) -> Tensor:
    return _torch().nn.functional.linear(inputs[0].flatten(1), context.parameter("weight"), context.parameter("bias"))


def _conv2d(context: _Context, inputs: Sequence[Tensor]) -> Tensor:
    return _torch().nn.functional.conv2d(
        inputs[0],
        context.parameter("weight"),
        context.parameter("bias"),
        stride=context.layer.integer("stride", 1),
        padding=context.layer.integer("padding", 0),
        groups=context.layer.integer("groups", 1),
    )


def _batch_norm(context: _Context, inputs: Sequence[Tensor]) -> Tensor:
    return _torch().batch_norm(
        inputs[0],
        context.parameter("weight"),
        context.parameter("bias"),
        context.statistic("running_mean"),
        context.statistic("running_var"),
        context.training,
        context.layer.number("momentum", 0.1),
        context.layer.number("eps", 1e-5),
        False,
    )


def _local_response_norm(context: _Context, inputs: Sequence[Tensor]) -> Tensor:
    return _torch().nn.functional.local_response_norm(
        inputs[0],
        context.layer.integer("size", 5),
        context.layer.number("alpha", 1e-4),
        context.layer.number("beta", 0.75),
        context.layer.number("k", 1.0),
    )


def _dropout(context: _Context, inputs: Sequence[Tensor]) -> Tensor:
    if not context.training:
        return inputs[0]
    width = int(np.prod(inputs[0].shape[1:]))
    batch, rate = context.batch, context.layer.number("rate", 0.5)
    factors = initializers.dropout_factors(context.engine._seed, context.index, rate, batch.step, batch.row_ids, width)
    return inputs[0] * _torch().from_numpy(factors).to(inputs[0]).reshape(inputs[0].shape)


_FORWARD: dict[str, Callable[[_Context, Sequence[Tensor]], Tensor]] = {
    "linear": _linear,
    "conv2d": _conv2d,
    "batch-norm": _batch_norm,
    "local-response-norm": _local_response_norm,
    "dropout": _dropout,
    "relu": lambda _, inputs: _torch().relu(inputs[0]),
    "tanh": lambda _, inputs: _torch().tanh(inputs[0]),
    "sigmoid": lambda _, inputs: _torch().sigmoid(inputs[0]),
    "log-softmax": lambda _, inputs: _torch().log_softmax(inputs[0], 1),
    "flatten": lambda _, inputs: inputs[0].flatten(1),
    "add": lambda _, inputs: inputs[0] + inputs[1],
    "concat": lambda _, inputs: _torch().cat(list(inputs), 1),
    "max-pool": lambda context, inputs: _torch().nn.functional.max_pool2d(inputs[0], **context.window),
    "avg-pool": lambda context, inputs: _torch().nn.functional.avg_pool2d(inputs[0], **context.window),
    "global-avg-pool": lambda _, inputs: inputs[0].mean((2, 3)),
}


@contextmanager
def _in_full_precision() -> Iterator[None]:
    backends = _torch().backends
    before = backends.cuda.matmul.allow_tf32
    backends.cuda.matmul.allow_tf32 = False
    try:
        with backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            yield
    finally:
        backends.cuda.matmul.allow_tf32 = before


def _known_to_gpu(arrays: Sequence[Values], device: Any) -> Callable[[], None]:
    """Tells CUDA of the host's arrays, which it then copies several times faster; returns what takes that back.

    Where the system allows no locked memory they are copied as any other.
    """
    torch = _torch()
    cuda = torch.cuda.cudart()
    known: list[Values] = []
    with torch.cuda.device(device):
        torch.zeros(1, device=device)
        for array in arrays:
            if array.nbytes and int(cuda.cudaHostRegister(array.ctypes.data, array.nbytes, 0)) == 0:
                known.append(array)
            elif array.nbytes:
                with suppress(RuntimeError):  # PyTorch's next call would tell of it
                    torch.zeros(1, device=device)

    def forget() -> None:
        for array in known:
            cuda.cudaHostUnregister(array.ctypes.data)

    return forget


def _found(name: str) -> Any:
    """The device of that name, which is there."""
    torch = _torch()
    matched = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if not matched:
        raise ConfigurationError(
            f"The engine 'torch' has no device '{name}'. Valid are cpu, cuda (the first GPU) and cuda:N, as cuda:0."
        )
    if name == "cpu":
        return torch.device("cpu")
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(matched[1] or 0)
    if index < devices:
        return torch.device("cuda", index)
    if devices:
        found = "it finds " + ", ".join(f"cuda:{each} ({torch.cuda.get_device_name(each)})" for each in range(devices))
        remedy = "Take one of these"
    elif torch.version.cuda is None and torch.version.hip is None:
        found = "it is built without CUDA"
        remedy = "Install a PyTorch that is built with it"
    else:
        built = torch.version.cuda or torch.version.hip
        found = f"it is built for CUDA {built} and finds no GPU: no driver is loaded, or no GPU is visible"
        remedy = "Look whether nvidia-smi lists one, and at CUDA_VISIBLE_DEVICES"
    raise ConfigurationError(
        f"The engine 'torch' was to compute on device '{name}', which PyTorch {torch.__version__} does not have here: "
        f"{found}. {remedy}, or take device cpu."
    )


def _torch() -> Any:
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ConfigurationError(
            "The engine 'torch' needs PyTorch, which is not installed here. Install the extra: pip install "
            "'sparkdl-bench[torch]'."
        ) from error
    return torch


def _over(spec: ModelSpec, seed: int, memory: Memory, device: str, loss: Loss) -> TorchEngine:
    return TorchEngine(spec, seed, False, device, memory, loss)


ENGINE = EngineVariant("torch", "PyTorch in one process: every layer kind, by autograd", TorchEngine, _over)
