"""The networks: a Gaussian policy and critics, all tanh MLPs."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from statewise.core.tanh import tanh


def mlp(inputs: int, hidden: Sequence[int], outputs: int, softplus: bool = False) -> nn.Sequential:
    """A tanh MLP with a linear head, or a positive one."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), Tanh()]
        inputs = width
    layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers, nn.Softplus()) if softplus else nn.Sequential(*layers)


def start_at(net: nn.Sequential, values: Tensor) -> None:
    """Let an `mlp` with a positive head say about `values [outputs]` before it has learned."""
    head = [layer for layer in net if isinstance(layer, nn.Linear)][-1]
    head.bias.data.copy_(values + (-(-values).expm1()).log())  # the inverse of softplus


class Tanh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return tanh(x)


class GaussianPolicy(nn.Module):
    """Mean from an MLP, standard deviation the same in every state, no squashing.

    It reads the first `inputs` numbers of what it is given.
    """

    def __init__(self, inputs: int, actions: int, hidden: Sequence[int], log_std: float) -> None:
        super().__init__()
        self.inputs = inputs
        self.log_std = nn.Parameter(torch.full((actions,), log_std))
        self.mean = mlp(inputs, hidden, actions)

    def forward(self, x: Tensor) -> Tensor:
        """The mean action `[..., a]` at inputs `[..., n]`."""
        mean: Tensor = self.mean(x[..., : self.inputs])
        return mean

    def sample(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """An action `[B, a]` for each input `[B, n]`."""
        mean = self(x)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return mean + noise * self.log_std.exp()

    @property
    def layers(self) -> list[nn.Linear]:
        return [layer for layer in self.mean if isinstance(layer, nn.Linear)]

    def flat(self) -> Tensor:
        """All parameters as one vector `[P]`: log_std, then weight and bias of each layer."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters()])

    def set_flat(self, theta: Tensor) -> None:
        start = 0
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(theta[start : start + p.numel()].view_as(p))
                start += p.numel()


class ActionSlope(nn.Module):
    """A model linear in the action: h_i(s)·a for each of m quantities."""

    def __init__(self, inputs: int, actions: int, outputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.slope = mlp(inputs, hidden, outputs * actions)

    def slopes(self, x: Tensor) -> Tensor:
        """h `[B, m, a]` at inputs `[B, n]`."""
        slopes: Tensor = self.slope(x).view(len(x), self.outputs, -1)
        return slopes

    def forward(self, x: Tensor) -> Tensor:
        """h·a `[B, m]` from inputs and actions side by side, `[B, n + a]`."""
        slopes = self.slopes(x[:, : self.inputs])
        return (slopes @ x[:, self.inputs :].unsqueeze(-1)).squeeze(-1)


class Scaler(nn.Module):
    """Inputs less their mean, in units of their spread, both over all data seen so far.

    Sensors read from thousandths to hundreds. As they are, the large ones drive a tanh network to its
    limits, where it cannot see the small ones.
    """

    LEAST, SHARE, MOST = 0.01, 0.1, 10.0
    """The spread taken is at least this, and this share of the mean: an input that hardly changed so
    far may still do so one day. Scaled inputs end at plus and minus the third."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.count, self.mean, self.square = (
            nn.Buffer(torch.zeros(shape, dtype=torch.float64)) for shape in ((), size, size)
        )
        """Rows; their mean; the sum of their squared distances from it."""
        self.shift, self.factor = nn.Buffer(torch.zeros(size)), nn.Buffer(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift, x, self.factor).clamp_(-self.MOST, self.MOST)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take in rows `[N, k]`, or none of them if one is not finite. Does not wait for a GPU."""
        variance, mean = (v.double() for v in torch.var_mean(x, dim=0, correction=0))
        good = torch.isfinite(variance).all()
        rows = good.double() * len(x)
        count = self.count + rows
        share = rows / count.clamp(min=1.0)
        distance = torch.where(good, mean - self.mean, 0.0)
        self.square.add_(torch.where(good, variance, 0.0) * rows)
        self.square.add_(distance.square() * self.count * share)
        self.mean.add_(distance * share)
        self.count.copy_(count)
        spread = (self.square / count.clamp(min=1.0)).sqrt()
        least = (self.SHARE * self.mean.abs()).clamp(min=self.LEAST)
        self.factor.copy_(torch.where(count > 0, 1.0 / torch.maximum(spread, least), 1.0))
        self.shift.copy_(-self.mean * self.factor)
