"""Many small GPU operations as one launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

Function = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True, eq=False)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Graphed:
    """A function of tensors that, on a GPU, is recorded once and then replayed as one CUDA graph.

    On a CPU it is called as it is. On a GPU the first call with inputs of given shapes runs as it
    is too (libraries set themselves up in it), the second records, later ones replay. The function
    may read and write other tensors, such as weights, as long as they stay where they are: where
    they are replaced, make a new one. It must not read anything back to the host. The outputs are
    valid until the next call.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._seen: set[tuple[object, ...]] = set()
        self._recordings: dict[tuple[object, ...], _Recording] = {}

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        if not inputs[0].is_cuda:
            return self._function(*inputs)
        key = tuple((x.shape, x.dtype) for x in inputs)
        if key not in self._seen:
            self._seen.add(key)
            return self._function(*inputs)
        if key not in self._recordings:
            self._recordings[key] = self._record(inputs)
        recording = self._recordings[key]
        for mine, given in zip(recording.inputs, inputs, strict=True):
            mine.copy_(given)
        recording.graph.replay()
        return recording.outputs

    def _record(self, inputs: tuple[Tensor, ...]) -> _Recording:
        mine = tuple(x.detach().clone() for x in inputs)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            outputs = self._function(*mine)
        return _Recording(graph, mine, outputs)


@contextmanager
def lanes(device: torch.device, count: int) -> Iterator[list[AbstractContextManager[object]]]:
    """`count` contexts for work that does not depend on each other: on a GPU it runs side by side.

    What is used in several of them has to live until the end.
    """
    if device.type != "cuda":
        yield [nullcontext() for _ in range(count)]
        return
    here = torch.cuda.current_stream(device)
    streams = [torch.cuda.Stream(device) for _ in range(count)]
    for stream in streams:
        stream.wait_stream(here)
    yield [torch.cuda.stream(stream) for stream in streams]
    for stream in streams:
        here.wait_stream(stream)


def minibatches(rows: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The rows `[steps, n]` of each tensor, step by step; on a GPU gathered now, all at once."""
    if rows.is_cuda:
        return zip(*(x[rows] for x in tensors), strict=True)
    return (tuple(x.index_select(0, chosen) for x in tensors) for chosen in rows)
