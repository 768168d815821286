"""The ONNX model of a trained policy.

Inputs: `observation [batch, n]`, `clearance` or `cost [batch, m]` of the step that led to it, and the
running `maximum [batch, m]`. Outputs: `action [batch, a]` from -1 to 1, `new_maximum [batch, m]`, and
`cost_value [batch, m]` if the algorithm predicts costs. Without constraints only the first of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from statewise.algos import Algorithm
from statewise.algos.trpo_sl import SafetyLayer, TrpoSl
from statewise.algos.trpo_usl import TrpoUsl
from statewise.deploy.corrections import safety_layer, unrolled_layer
from statewise.deploy.cost_values import predicts_cost
from statewise.deploy.facts import Charge, Measured
from statewise.deploy.graph import IR_VERSION, OPSET, RUNTIMES, Graph, network
from statewise.nets import GaussianPolicy
from statewise.version import __version__


def build_model(
    algo: Algorithm, measured: Measured, charges: Sequence[Charge] = (), opset: int = OPSET
) -> onnx.ModelProto:
    """The model of what `algo` does without noise. charges: one for each constraint, for clearances."""
    _check_exportable(algo)
    if opset not in RUNTIMES:
        raise ValueError(
            f"opset {opset} is too {'old' if opset < OPSET else 'new'}: the graph can be written for "
            f"opset {OPSET} to {max(RUNTIMES)}"
        )
    spec, g = algo.spec, Graph()
    m = spec.num_costs
    cost = maximum = ""
    if m:
        cost = _cost(g, algo, charges) if measured == "clearance" else "cost"
        maximum = g("Max", "maximum", cost, output="new_maximum")
    inputs = _inputs(g, algo, maximum)
    policy = algo.policy
    seen = inputs if policy.inputs == algo.inputs else g.columns(inputs, 0, policy.inputs)
    action = network(g, policy.mean, seen)
    if isinstance(algo, SafetyLayer) and algo.correcting:
        if isinstance(algo, TrpoSl):
            action = safety_layer(g, algo, inputs, action, cost)
        elif isinstance(algo, TrpoUsl):
            action = unrolled_layer(g, algo, inputs, action)
    ends = (g.constant(end) for end in (-1.0, 1.0))
    action = g("Clip", action, *ends, output="action")
    outputs = [("action", spec.action_size)]
    if m:
        outputs.append(("new_maximum", m))
    if predicts_cost(algo):
        _cost_value(g, algo, inputs, action)
        outputs.append(("cost_value", m))
    names = [("observation", spec.obs_size), *((x, m) for x in (measured, "maximum") if m)]
    graph = helper.make_graph(
        g.nodes, "policy", _infos(names), _infos(outputs), list(g.constants.values())
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION,
        producer_name="statewise", producer_version=__version__,
    )  # fmt: skip
    onnx.checker.check_model(model, full_check=True)
    return model


def _check_exportable(algo: Algorithm) -> None:
    """Raise ValueError if an algorithm acts in a way that the graph does not repeat."""
    kind = type(algo)
    known: dict[str, set[Any]] = {
        "act": {Algorithm.act},
        "observe": {Algorithm.observe},
        "correct": {Algorithm.correct, SafetyLayer.correct},
        "_scale": {Algorithm._scale},
        "_unscaled": {Algorithm._unscaled},
    }
    if isinstance(algo, SafetyLayer):
        known["make_safe"] = {TrpoSl.make_safe, TrpoUsl.make_safe}
    own = [name for name, functions in known.items() if getattr(kind, name) not in functions]
    if own:
        raise ValueError(
            f"{algo.name} has its own {own[0].lstrip('_')}(), which cannot be exported: only the "
            f"acting and the corrections that statewise brings can"
        )
    if type(algo.policy) is not GaussianPolicy:
        raise ValueError(
            f"the policy of {algo.name} is a {type(algo.policy).__name__}: only a GaussianPolicy can "
            f"be exported"
        )


def _cost(g: Graph, algo: Algorithm, charges: Sequence[Charge]) -> str:
    """The learner's cost `[B, m]` of the clearances, which begins at the training margin."""
    if len(charges) != algo.spec.num_costs:
        raise ValueError(
            f"{len(charges)} charges for the constraints {', '.join(algo.spec.cost_names)}: give one "
            f"for each"
        )
    short = g("Sub", g.constant(np.array(algo.spec.margin)), "clearance")
    short = g("Min", g.clip(short, 0.0, None), g.constant(np.array(algo.spec.cost_ceiling)))
    if "contact" not in charges:
        return short
    contact = g.constant([charge == "contact" for charge in charges], "bool")
    return g("Where", contact, g.cast(g.positive(short), "float32"), short)


def _inputs(g: Graph, algo: Algorithm, maximum: str) -> str:
    """What the networks read: the live part of the observation and the maximum, scaled."""
    live, x = algo.spec.num_live, "observation"
    if live < algo.spec.obs_size:
        x = g.columns(x, 0, live)
    if algo.sees_maximum:
        x = g.concat(x, maximum)
    if not algo.settings.scale_inputs:
        return x
    scaler = algo.scaler
    factor, shift = (g.constant(part.cpu().numpy()) for part in (scaler.factor, scaler.shift))
    return g.clip(g("Add", g("Mul", x, factor), shift), -scaler.MOST, scaler.MOST)


def _cost_value(g: Graph, algo: Algorithm, inputs: str, action: str) -> None:
    critic = algo.cost_to_go if isinstance(algo, TrpoUsl) else algo.cost_value
    given = g.concat(inputs, action) if isinstance(algo, TrpoUsl) else inputs
    assert critic is not None
    g("Identity", network(g, critic, given), output="cost_value")


def _infos(names: Sequence[tuple[str, int]]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
        for name, size in names
    ]
