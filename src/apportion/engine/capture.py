"""A step as a CUDA graph: the whole of it is launched at once, and nothing waits for Python.

A graph is a recording of kernels and of the memory they use, so that a replay does what was
recorded to whatever that memory holds by then: the network, the optimiser's state, the labels and
the progress are changed in place, and the instances of a step are copied to where the recorded one
had them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from apportion.engine.batches import Step
from apportion.nets.normalized import parts

__all__ = ["CapturedStep", "as_recorded"]


class CapturedStep:
    """A recorded step, for all steps of its shape.

    The step must have been taken a few times before, on the current stream: libraries allocate
    what they need when they are first used, which cannot be recorded.
    """

    def __init__(self, take: Callable[[Step], Tensor], like: Step) -> None:
        assert like.x is not None
        names = ("position", "proportions", "sizes", "bag", "weight")
        given = {name: t for name in names if (t := getattr(like, name)) is not None}
        own: dict[str, Any] = {name: tensor.clone() for name, tensor in given.items()}
        self.step = replace(like, x=tuple(part.clone() for part in like.x), **own)
        self.graph = torch.cuda.CUDAGraph()
        # Only calls of this thread could spoil the recording: other runs go on in theirs.
        with torch.cuda.graph(
            self.graph,
            stream=torch.cuda.current_stream(like.position.device),
            capture_error_mode="thread_local",
        ):
            self.loss = take(self.step)

    def __call__(self, step: Step) -> Tensor:
        """Take a step, and return its loss without waiting for it."""
        for own, new in zip(_tensors(self.step), _tensors(step), strict=True):
            own.copy_(new)
        self.graph.replay()
        return self.loss.clone()


def _tensors(step: Step) -> list[Tensor]:
    assert step.x is not None
    given = (step.position, step.proportions, step.sizes, step.bag, step.weight, *step.x)
    return [tensor for tensor in given if tensor is not None]


@contextmanager
def as_recorded(net: nn.Module, *, compiled: bool) -> Iterator[None]:
    """Take steps as they will be recorded, until the end of the block.

    With `compiled`, torch compiles the net and, for methods that call it by itself, the network
    within; random numbers stay those of steps that are not compiled. What the caller has compiled
    stays as it is.
    """
    candidates: list[Any] = [net, parts(net)[1]] if compiled else []
    modules = [m for m in dict.fromkeys(candidates) if m._compiled_call_impl is None]
    try:
        # Past its limit torch compiles nothing more, silently; and networks share what it counts.
        with torch._dynamo.config.patch(recompile_limit=64) if compiled else nullcontext():
            for module in modules:
                module.compile(dynamic=False, options={"fallback_random": True})
            yield
    finally:
        for module in modules:
            module._compiled_call_impl = None
