"""A policy as an ONNX graph, node by node: scaling, running maximum, networks, safety layers.

The graph is built directly and not traced, so that it needs no tracer, takes any batch size and has
the same few operations in every version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from statewise.nets import Tanh

IR_VERSION = 7
"""The format of the file."""
RUNTIMES = {13: "1.6", 14: "1.8", 15: "1.10", 16: "1.11", 17: "1.12"}
"""The operator sets that the graph can be written for, and the first onnxruntime that reads each."""
OPSET = min(RUNTIMES)
_TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


class Graph:
    """Collects nodes. Calling it adds one and returns the name of its output."""

    def __init__(self, parent: Graph | None = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._root: Graph = parent._root if parent else self
        if parent is None:
            self.constants: dict[tuple[Any, ...], onnx.TensorProto] = {}
            self._count = 0

    def name(self, what: str) -> str:
        self._root._count += 1
        return f"{what}_{self._root._count}"

    def __call__(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or self.name(op.lower())
        self.add(op, inputs, [output], **attributes)
        return output

    def add(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        """Add a node of several outputs."""
        self.nodes.append(helper.make_node(op, list(inputs), list(outputs), **attributes))

    def constant(self, value: Any, kind: str = "float32") -> str:
        """Add a constant tensor, or reuse an equal one."""
        array = np.ascontiguousarray(value, dtype=kind).reshape(np.shape(value))
        key = (kind, array.shape, array.tobytes())
        known = self._root.constants
        if key not in known:
            known[key] = numpy_helper.from_array(array, self.name("constant"))
        return known[key].name

    def columns(self, x: str, start: int, stop: int) -> str:
        """x[..., start:stop]"""
        ends = (self.constant([end], "int64") for end in (start, stop, -1))
        return self("Slice", x, *ends)

    def concat(self, *parts: str, axis: int = -1) -> str:
        return self("Concat", *parts, axis=axis) if len(parts) > 1 else parts[0]

    def clip(self, x: str, low: float | None, high: float | None, kind: str = "float32") -> str:
        ends = ["" if end is None else self.constant(end, kind) for end in (low, high)]
        return self("Clip", x, *(ends if high is not None else ends[:1]))

    def total(self, x: str, axis: int = -1, keep: bool = True) -> str:
        """The sum over an axis."""
        return self("ReduceSum", x, self.constant([axis], "int64"), keepdims=int(keep))

    def unsqueeze(self, x: str, axis: int) -> str:
        return self("Unsqueeze", x, self.constant([axis], "int64"))

    def squeeze(self, x: str, axis: int = -1) -> str:
        return self("Squeeze", x, self.constant([axis], "int64"))

    def cast(self, x: str, kind: str) -> str:
        return self("Cast", x, to=_TYPES[kind])

    def any(self, x: str, axis: int = -1) -> str:
        """Whether any of x is true along an axis, which is kept."""
        most = self("ReduceMax", self.cast(x, "float32"), axes=[axis], keepdims=1)
        return self("Greater", most, self.constant(0.5))

    def anywhere(self, x: str) -> str:
        """Whether any of x is true: a scalar."""
        most = self("ReduceMax", self.cast(x, "float32"), keepdims=0)
        return self("Greater", most, self.constant(0.5))

    def positive(self, x: str, kind: str = "float32") -> str:
        """x > 0"""
        return self("Greater", x, self.constant(0.0, kind))

    def either(self, condition: str, then: Callable[[Graph], str], other: str, kind: str) -> str:
        """Compute `then` only if a scalar condition holds."""
        branch, alternative = Graph(self), Graph(self)
        results = then(branch), alternative("Identity", other)
        graphs = [
            _body(part, (), [(result, kind)], self.name("branch"))
            for part, result in zip((branch, alternative), results, strict=True)
        ]
        return self("If", condition, then_branch=graphs[0], else_branch=graphs[1])

    def repeat(
        self,
        most: int,
        body: Callable[[Graph, list[str]], tuple[str | None, list[str]]],
        start: Sequence[str],
        kind: str,
    ) -> list[str]:
        """Run `body` up to `most` times, or until its first output is false. Return the loop's state."""
        inner = Graph(self)
        carried = [self.name("carried") for _ in start]
        number, going = self.name("number"), self.name("going")
        goes_on, results = body(inner, carried)
        goes_on = inner("Identity", goes_on or going)
        inputs = [
            helper.make_tensor_value_info(number, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, _TYPES[kind], None) for name in carried),
        ]
        results = [inner("Identity", result) for result in results]
        outputs = [(goes_on, "bool"), *((result, kind) for result in results)]
        graph = _body(inner, inputs, outputs, self.name("body"))
        names = [self.name("looped") for _ in start]
        count, true = self.constant(most, "int64"), self.constant(True, "bool")
        self.add("Loop", [count, true, *start], names, body=graph)
        return names


def network(g: Graph, net: nn.Module, x: str) -> str:
    """The output of an `mlp` of statewise at `x [B, n]`."""
    return layers(g, net, x)[-1]


def layers(g: Graph, net: nn.Module, x: str) -> list[str]:
    """What each layer of an `mlp` gives, the last one last."""
    if not isinstance(net, nn.Sequential):
        raise ValueError(f"cannot export a {type(net).__name__}: only tanh MLPs can be exported")
    outputs = []
    for layer in net:
        if isinstance(layer, nn.Linear):
            weights = (g.constant(_array(p)) for p in (layer.weight, layer.bias))
            x = g("Gemm", x, *weights, transB=1)
        elif isinstance(layer, Tanh | nn.Tanh):
            x = g("Tanh", x)
        elif isinstance(layer, nn.Softplus):
            x = g("Softplus", x)
        else:
            raise ValueError(
                f"cannot export a layer of the kind {type(layer).__name__}: only tanh MLPs can be "
                f"exported"
            )
        outputs.append(x)
    return outputs


def _array(x: torch.Tensor) -> np.ndarray:
    return np.asarray(x.detach().cpu().numpy())


def _body(
    g: Graph, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[tuple[str, str]], name: str
) -> onnx.GraphProto:
    """The graph of a branch or of a loop."""
    infos = [
        helper.make_tensor_value_info(o, _TYPES[kind], [] if kind == "bool" else None)
        for o, kind in outputs
    ]
    return helper.make_graph(g.nodes, name, list(inputs), infos)
