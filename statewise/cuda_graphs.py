"""Many small GPU operations as one launch."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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


def side_by_side(device: torch.device, tasks: Sequence[Callable[[], Tensor]]) -> tuple[Tensor, ...]:
    """What each task returns, none of which needs another: on a GPU each gets a stream of its own.

    On a CPU each gets a thread, and its share of torch's threads: two cores do two small networks
    faster than half of each at a time.
    """
    if device.type != "cuda":
        return _in_threads(tasks)
    here = torch.cuda.current_stream(device)
    streams = [torch.cuda.Stream(device) for _ in tasks]
    results = []
    for stream, task in zip(streams, tasks, strict=True):
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            results.append(task())
    for stream in streams:
        here.wait_stream(stream)
    return tuple(results)


def _in_threads(tasks: Sequence[Callable[[], Tensor]]) -> tuple[Tensor, ...]:
    if len(tasks) == 1:
        return (tasks[0](),)
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // len(tasks)))  # of every thread that starts now, too
    try:
        with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
            return tuple(pool.map(lambda task: task(), tasks))
    finally:
        torch.set_num_threads(threads)


def minibatches(rows: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The rows `[steps, n]` of each tensor, step by step.

    On a GPU they are gathered now, all at once; on a CPU always into the same memory.
    """
    if rows.is_cuda:
        return zip(*(x[rows] for x in tensors), strict=True)
    pairs = [(x, x.new_empty(rows.shape[1], *x.shape[1:])) for x in tensors]
    return (
        tuple(torch.index_select(x, 0, chosen, out=mine) for x, mine in pairs) for chosen in rows
    )
