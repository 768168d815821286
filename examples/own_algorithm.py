"""Bring your own algorithm: one file. Here it is TRPO with a price on cost, set by a PID controller.

    cd examples
    statewise train Point-Hazard-8 --algo trpo_pid --import own_algorithm

After Stooke, Achiam and Abbeel, "Responsive Safety in Reinforcement Learning by PID Lagrangian Methods"
(2020). `docs/own_algorithm.md` explains the parts.
"""

from dataclasses import dataclass

import torch

import statewise
from statewise.algos import CostSettings, TrustRegionAlgorithm, TrustRegionSettings, surrogate
from statewise.settings import number


@dataclass(frozen=True)
class TrpoPidSettings(CostSettings, TrustRegionSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes."""

    kp: float = number(0.1, least=0)
    """Price for each unit by which the limit is violated now."""
    ki: float = number(0.01, least=0)
    """Price for each unit of violation, summed over all epochs so far."""
    kd: float = number(0.1, least=0)
    """Price for each unit by which the cost has risen since the last epoch."""
    smoothing: float = number(0.5, least=0, below=1)
    """Share of the last epoch's value that is kept when the violation and the cost are smoothed."""


@statewise.register_algorithm
class TrpoPid(TrustRegionAlgorithm):
    """TRPO with a price on each cost, set by a PID controller."""

    name = "trpo_pid"
    title = "TRPO-PID"
    settings_class = TrpoPidSettings

    def build(self):
        """What the controller remembers, one number for each constraint."""
        self.violation, self.integral, self.cost = torch.zeros(3, self.spec.num_costs).double()
        return {}  # no networks beside the policy and the two critics

    def update_networks(self, batch):
        """Set the price, improve the policy at that price, and fit the critics."""
        price = self.control(batch.J, self.settings.violation(batch.J))
        priced = batch.advantage - batch.cost_advantage @ price.to(batch.cost_advantage)
        metrics = self.natural_step(batch, surrogate(priced))
        metrics |= self.by_constraint(violation=self.violation, integral=self.integral, price=price)
        return metrics | self.fit_critics(batch)

    def control(self, cost, violation):
        """The price of each constraint, from what an episode costs and by how much that is too much."""
        s = self.settings
        keep = s.smoothing if self.epoch > 1 else 0.0
        last_cost, self.cost = self.cost, keep * self.cost + (1 - keep) * cost
        self.violation = keep * self.violation + (1 - keep) * violation
        self.integral = (self.integral + violation).clamp(min=0)
        rise = (self.cost - last_cost).clamp(min=0) if self.epoch > 1 else torch.zeros_like(cost)
        return (s.kp * self.violation + s.ki * self.integral + s.kd * rise).clamp(min=0)

    def extra_state(self):
        """What a resumed run needs to continue exactly."""
        return {"violation": self.violation, "integral": self.integral, "cost": self.cost}

    def load_extra_state(self, state):
        for name, value in state.items():
            setattr(self, name, value.cpu())
