"""The corrections of the two safety layers as parts of an ONNX graph.

Each repeats what its algorithm does in torch: `algos/trpo_sl.py` with `core/projection.py`, and
`algos/trpo_usl.py`. Shapes: actions `[B, a]`, slopes `[B, m, a]`, offsets `[B, m]`.
"""

from __future__ import annotations

from torch import nn

from statewise.algos.trpo_sl import TrpoSl
from statewise.algos.trpo_usl import TrpoUsl
from statewise.deploy.graph import Graph, layers, network

_EXACT = "float64"
_NEWTON_STEPS = 30
_PENALTY = 1e4


def safety_layer(g: Graph, algo: TrpoSl, inputs: str, action: str, cost: str) -> str:
    """TRPO-SL: the nearest action in the box that the cost model calls safe."""
    m, a = algo.spec.num_costs, algo.spec.action_size
    shape = g.constant([-1, m, a], "int64")
    slopes = g("Reshape", network(g, algo.cost_model.slope, inputs), shape)
    allowed = (algo.limit.cpu() + algo.settings.slack).numpy()
    offset = g("Sub", cost, g.constant(allowed))
    clipped = g.clip(action, -1.0, 1.0)
    predicted = g("Add", offset, _products(g, slopes, clipped))
    unsafe = g.any(g.positive(predicted))

    def solve(inner: Graph) -> str:
        nearest = _project(inner, action, slopes, offset, m)
        return inner("Where", unsafe, nearest, clipped)

    return g.either(g.anywhere(unsafe), solve, clipped, "float32")


def unrolled_layer(g: Graph, algo: TrpoUsl, inputs: str, action: str) -> str:
    """TRPO-USL: gradient steps on the actions whose predicted cost-to-go exceeds the limit."""
    s = algo.settings
    allowed = (algo.limit.cpu() + s.slack).numpy()
    start = g.clip(action, -1.0, 1.0)

    def descend(inner: Graph, carried: list[str]) -> tuple[str | None, list[str]]:
        (at,) = carried
        slope, unsafe = _slope(inner, algo, inputs, at, inner.constant(allowed))
        size = inner("ReduceMax", inner("Abs", slope), axes=[-1], keepdims=1)
        unit = inner("Div", slope, inner.clip(size, 1e-12, None))
        step = inner("Mul", unit, inner.constant(s.correction_rate))
        lower = inner.clip(inner("Sub", at, step), -1.0, 1.0)
        return inner.anywhere(unsafe), [inner("Where", unsafe, lower, at)]

    return g.repeat(s.correction_steps, descend, [start], "float32")[0]


def _slope(g: Graph, algo: TrpoUsl, inputs: str, at: str, allowed: str) -> tuple[str, str]:
    """Gradient `[B, a]` of the excess of Q_C over its limit by the action, and where it exceeds it."""
    outputs = layers(g, algo.cost_to_go, g.concat(inputs, at))
    excess = g("Sub", outputs[-1], allowed)
    above = g.positive(excess)
    # Backwards: the Softplus, then each linear layer and the tanh before it.
    slope = g("Mul", g.cast(above, "float32"), g("Sigmoid", outputs[-2]))
    linear = [layer for layer in algo.cost_to_go if isinstance(layer, nn.Linear)]
    hidden = outputs[1:-2:2]
    for layer, tanh in zip(reversed(linear), [*reversed(hidden), None], strict=True):
        weight = layer.weight.detach().cpu().numpy()
        if tanh is None:
            weight = weight[:, algo.inputs :]
        slope = g("MatMul", slope, g.constant(weight))
        if tanh is not None:
            flat = g("Sub", g.constant(1.0), g("Mul", tanh, tanh))
            slope = g("Mul", slope, flat)
    return slope, g.any(above)


def _project(g: Graph, action: str, slopes: str, offset: str, m: int) -> str:
    """`core.projection.project_safe_box` for every row, in float64."""
    size = g("ReduceL2", slopes, axes=[-1], keepdims=0)
    usable = g.positive(size)
    length = g.cast(g("Where", usable, size, g.constant(1.0)), _EXACT)
    unit = g("Div", g.cast(slopes, _EXACT), g.unsqueeze(length, -1))
    shifted = g("Div", g.cast(offset, _EXACT), length)
    shifted = g("Where", usable, shifted, g.constant(-1.0, _EXACT))
    target = g.cast(action, _EXACT)
    point = _nearest_to_one if m == 1 else _nearest_to_all
    return g.clip(g.cast(point(g, target, unit, shifted, m), "float32"), -1.0, 1.0)


def _nearest_to_one(g: Graph, target: str, unit: str, offset: str, m: int) -> str:
    """`core.projection._project_one`: target `[B, a]`, unit `[B, 1, a]`, offset `[B, 1]`."""
    zero, one = (g.constant(x, _EXACT) for x in (0.0, 1.0))
    normal = g.squeeze(unit, 1)
    still = g("Equal", normal, zero)
    divisor = g("Where", still, one, normal)
    sides = [
        g("Where", still, zero, g("Div", g(op, target, one), divisor)) for op in ("Sub", "Add")
    ]
    bends = g.clip(g.concat(*sides), 0.0, None, _EXACT)
    count = g("Gather", g("Shape", bends), g.constant([1], "int64"))
    ordered, index = g.name("ordered"), g.name("index")
    g.add("TopK", [bends, count], [ordered, index], axis=-1, largest=0, sorted=1)
    bends = g.concat(g("Mul", g.columns(ordered, 0, 1), zero), ordered)  # [B, 2a + 1]
    moved = g("Mul", g.unsqueeze(bends, -1), unit)
    points = g.clip(g("Sub", g.unsqueeze(target, 1), moved), -1.0, 1.0, _EXACT)
    excess = g("Add", offset, g.total(g("Mul", points, unit), keep=False))
    above = g.total(g.cast(g.positive(excess, _EXACT), "int64"))
    after = g("Max", g("Min", above, count), g.constant([1], "int64"))
    before = g("Sub", after, g.constant([1], "int64"))
    high, low, start, end = (
        g("GatherElements", x, i, axis=-1)
        for x, i in ((excess, before), (excess, after), (bends, before), (bends, after))
    )
    fall = g("Sub", high, low)
    falls = g.positive(fall, _EXACT)
    part = g("Div", high, g("Where", falls, fall, one))
    part = g.clip(g("Where", falls, part, one), 0.0, 1.0, _EXACT)
    length = g("Add", start, g("Mul", part, g("Sub", end, start)))
    return g.clip(g("Sub", target, g("Mul", length, normal)), -1.0, 1.0, _EXACT)


_NAMES = ("s", "t", "y", "z", "above", "below", "u", "l")


def _nearest_to_all(g: Graph, target: str, unit: str, offset: str, m: int) -> str:
    """`core.projection._elastic_projection`: target `[B, a]`, unit `[B, m, a]`, offset `[B, m]`."""
    zero, one = (g.constant(x, _EXACT) for x in (0.0, 1.0))
    across = g("Transpose", unit, perm=[0, 2, 1])
    x = g("Mul", target, zero)
    ones = g("Add", x, one)
    s = g("Add", g.clip(offset, 0.0, None, _EXACT), one)
    ones_m = g("Add", g("Mul", offset, zero), one)
    rest = g("Mul", ones_m, g.constant(_PENALTY - 1.0, _EXACT))
    start = [x, s, g("Sub", s, offset), ones_m, rest, ones, ones, ones, ones]

    def newton(inner: Graph, carried: list[str]) -> tuple[str | None, list[str]]:
        x, values = carried[0], dict(zip(_NAMES, carried[1:], strict=True))
        dx, change = _newton_step(inner, x, target, unit, across, values, m)
        everything = inner.concat(dx, *change.values())
        differs = inner("Sub", everything, everything)  # not 0 where it is not finite
        finite = inner("Equal", differs, inner.constant(0.0, _EXACT))
        bad = inner.any(inner("Not", finite))
        shrink = [
            inner(
                "ReduceMax", inner("Neg", inner("Div", change[k], values[k])), axes=[-1], keepdims=1
            )
            for k in _NAMES
        ]
        most = inner.clip(inner("Max", *shrink), 0.995, None, _EXACT)
        step = inner("Div", inner.constant(0.995, _EXACT), most)
        moves = {"x": dx, **change}
        return None, [
            inner("Where", bad, old, inner("Add", old, inner("Mul", step, moves[k])))
            for k, old in zip(("x", *_NAMES), carried, strict=True)
        ]

    return g.repeat(_NEWTON_STEPS, newton, start, _EXACT)[0]


def _newton_step(
    g: Graph, x: str, target: str, unit: str, across: str, values: dict[str, str], m: int
) -> tuple[str, dict[str, str]]:
    """`core.projection._newton_step`."""
    s, t, y, z, above, below, u, l = (values[k] for k in _NAMES)  # noqa: E741
    one = g.constant(1.0, _EXACT)

    def add(*terms: str) -> str:
        total = terms[0]
        for term in terms[1:]:
            total = g("Add", total, term)
        return total

    def sub(p: str, q: str) -> str:
        return g("Sub", p, q)

    def mul(p: str, q: str) -> str:
        return g("Mul", p, q)

    def div(p: str, q: str) -> str:
        return g("Div", p, q)

    products = g.concat(mul(y, t), mul(z, s), mul(u, above), mul(l, below))
    mean = g("ReduceMean", products, axes=[-1], keepdims=1)
    mu = g.clip(mul(g.constant(0.1, _EXACT), mean), 1e-13, None, _EXACT)
    spread = add(div(t, y), div(s, z))
    shift = sub(sub(div(mu, y), t), sub(div(mu, z), s))
    pull = _products(g, across, add(y, div(shift, spread)))
    gradient = sub(add(sub(x, target), pull, div(mu, above)), div(mu, below))
    inverse = div(one, add(one, div(u, above), div(l, below)))
    scaled = mul(unit, g.unsqueeze(inverse, 1))
    matrix = g("MatMul", scaled, across)
    pushed = _solve(g, matrix, spread, _products(g, scaled, gradient), m)
    dx = mul(inverse, sub(_products(g, across, pushed), gradient))
    dy = div(add(_products(g, unit, dx), shift), spread)
    ds = sub(div(add(mu, mul(s, dy)), z), s)
    return dx, {
        "s": ds,
        "t": sub(div(sub(mu, mul(t, dy)), y), t),
        "y": dy,
        "z": sub(div(sub(mu, mul(z, ds)), s), z),
        "above": g("Neg", dx),
        "below": g("Identity", dx),
        "u": sub(div(add(mu, mul(u, dx)), above), u),
        "l": sub(div(sub(mu, mul(l, dx)), below), l),
    }


def _solve(g: Graph, matrix: str, diagonal: str, right: str, m: int) -> str:
    """x `[B, m]` of (matrix + diag(diagonal)) x = right, by elimination: it is positive definite."""

    def entry(x: str, i: int) -> str:
        return g.columns(x, i, i + 1)  # [B, 1]

    lines = [g.squeeze(g("Slice", matrix, *(g.constant([e], "int64") for e in (i, i + 1, 1))), 1)
             for i in range(m)]  # fmt: skip
    a = [[entry(lines[i], j) for j in range(m)] for i in range(m)]
    b = [entry(right, i) for i in range(m)]
    for i in range(m):
        a[i][i] = g("Add", a[i][i], entry(diagonal, i))
    for i in range(m):
        for k in range(i + 1, m):
            factor = g("Div", a[k][i], a[i][i])
            for j in range(i + 1, m):
                a[k][j] = g("Sub", a[k][j], g("Mul", factor, a[i][j]))
            b[k] = g("Sub", b[k], g("Mul", factor, b[i]))
    x: dict[int, str] = {}
    for i in reversed(range(m)):
        for j in range(i + 1, m):
            b[i] = g("Sub", b[i], g("Mul", a[i][j], x[j]))
        x[i] = g("Div", b[i], a[i][i])
    return g.concat(*(x[i] for i in range(m)))


def _products(g: Graph, matrix: str, vector: str) -> str:
    """matrix `[B, p, q]` times vector `[B, q]`."""
    return g.squeeze(g("MatMul", matrix, g.unsqueeze(vector, -1)))
