"""A trained policy to call from your own code."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from statewise.algos import Algorithm, get_algorithm
from statewise.envs.env import Env
from statewise.envs.suites import proper_name
from statewise.plugins import import_for_run
from statewise.runs import checkpoint
from statewise.runs.folder import RunFolder, RunFolderError
from statewise.runs.identity import PolicyId, policy_sha256
from statewise.settings import asked, to_json, typed
from statewise.training.config import TrainSettings, read_config, read_spec
from statewise.training.loop import build_env
from statewise.types import EnvSpec, Step
from statewise.zoo import pretrained_policies


class Policy:
    """A trained policy. It keeps the running maximum of the costs that you pass to it.

    policy = statewise.load_policy("runs/Point-Hazard-8/scpo/seed-0")
    policy.reset()                       # an episode begins: the maximum is 0
    action = policy(obs)                 # first step
    action = policy(obs, cost)           # from then on: the cost of the step just taken
    """

    def __init__(
        self, algo: Algorithm, settings: TrainSettings, source: PolicyId | None = None
    ) -> None:
        self.algo, self.settings, self.spec = algo, settings, algo.spec
        self.source = source
        """The run and checkpoint of the policy, and its hash."""
        self.reset()

    @property
    def needs_cost(self) -> bool:
        """Whether you must pass the cost of every step."""
        return self.algo.acts_on_cost and self.spec.num_costs > 0

    def reset(self, rows: Tensor | np.ndarray | None = None) -> None:
        """Begin new episodes: all of them, or the rows of a batch that a mask `[B]` selects.

        The next call ignores the costs of those rows, because a batched environment still reports the
        episode that ended there.
        """
        if rows is None:
            self.cost_max = torch.zeros(self.spec.num_costs)
            """[m] or [B, m] largest cost of each episode so far"""
            self._begun: Tensor | None = None
            self._started = False
            return
        mask = torch.as_tensor(rows, dtype=torch.bool)
        if mask.dim() != 1 or self.cost_max.shape[:-1] != mask.shape:
            raise ValueError(
                f"reset(rows) got a mask of shape {tuple(mask.shape)} for costs of shape "
                f"{tuple(self.cost_max.shape)}: give one truth value for each row of the last batch"
            )
        self.cost_max = self.cost_max.masked_fill(mask.unsqueeze(1), 0.0)
        self._begun = mask if self._begun is None else self._begun | mask

    def __call__(
        self, obs: Tensor | np.ndarray, cost: Tensor | np.ndarray | float | None = None
    ) -> np.ndarray:
        """Return the mean action `[a]` or `[B, a]`, from -1 to 1, and update the running maximum.

        obs: one observation `[n]`, or a batch `[B, n]`.
        cost: of the step that led to `obs`, `[m]` or `[B, m]`, one number for each constraint. None at
            the start, and at any time if `needs_cost` is False. With a training margin, pass the cost
            with the margin.
        """
        obs = torch.as_tensor(obs, dtype=torch.float32)
        if obs.dim() not in (1, 2) or obs.shape[-1] != self.spec.obs_size:
            raise ValueError(
                f"the observation has shape {tuple(obs.shape)}; this policy for {self.spec.name} "
                f"takes ({self.spec.obs_size},), or a batch of them"
            )
        if not bool(torch.isfinite(obs).all()):
            raise ValueError("the observation is not finite: check the sensors")
        batch = obs.shape[:-1]
        last = self._last_cost(cost, batch)
        if not self._started:
            self.cost_max = torch.zeros(*batch, self.spec.num_costs)
        elif self.cost_max.shape[:-1] != batch:
            raise ValueError(
                f"the observation has shape {tuple(obs.shape)}, the costs kept so far "
                f"{tuple(self.cost_max.shape)}: call reset() when new episodes begin"
            )
        self._started, self._begun = True, None
        self.cost_max = torch.maximum(self.cost_max, last)
        action = self.algo.act(self._step(obs, last), generator=None).executed.clamp(-1.0, 1.0)
        return np.asarray((action if batch else action[0]).numpy())

    def export(self, path: str | Path, **settings: Any) -> Path:
        """Write a folder that runs without torch and statewise, and return its path.

        `settings` are those of `statewise.deploy.export.export_policy`.
        """
        # By name: nothing that trains depends on what deploys.
        export = importlib.import_module("statewise.deploy.export").export_policy
        return Path(export(self, path, **settings))

    def check(self, spec: EnvSpec) -> None:
        """Raise ValueError if the policy does not fit an environment."""
        mine, theirs = (
            (s.obs_size, s.action_size, tuple(s.cost_names), tuple(s.blocks))
            for s in (self.spec, spec)
        )
        if mine != theirs:
            raise ValueError(
                f"the policy was trained on {self.spec.name} with {mine[0]} observations, {mine[1]} "
                f"actions and the constraints {mine[2]}; {spec.name} has {theirs[0]}, {theirs[1]} "
                f"and {theirs[2]}: load a policy of that suite"
            )

    def _last_cost(self, cost: Tensor | np.ndarray | float | None, batch: torch.Size) -> Tensor:
        """The costs `[m]` or `[B, m]` of the step that led to an observation, checked."""
        shape = (*batch, self.spec.num_costs)
        if cost is None:
            begins = self._begun is not None and bool(self._begun.all())
            if self._started and self.needs_cost and not begins:
                raise ValueError(
                    "give the cost of the step just taken: this policy acts on it (or call reset(), "
                    "if an episode begins)"
                )
            return torch.zeros(shape)
        last = torch.as_tensor(cost, dtype=torch.float32)
        if last.numel() != math.prod(shape) or (batch and tuple(last.shape) != shape):
            raise ValueError(
                f"got {last.numel()} costs for {self.spec.num_costs} constraints "
                f"({', '.join(self.spec.cost_names)})"
                + (f" of {batch[0]} observations" if batch else "")
            )
        last = last.reshape(shape)
        if not bool((torch.isfinite(last) & (last >= 0)).all()):
            raise ValueError(f"the cost is {last.tolist()}: costs are finite and never negative")
        return last if self._begun is None else last.masked_fill(self._begun.unsqueeze(1), 0.0)

    def _step(self, obs: Tensor, cost: Tensor) -> Step:
        obs, cost, largest = (
            x if obs.dim() == 2 else x.unsqueeze(0) for x in (obs, cost, self.cost_max)
        )
        no = torch.zeros(len(obs), dtype=torch.bool)
        return Step.from_costs(obs, torch.zeros(len(obs)), cost, largest, largest, no, no, obs, no)


def _instead_of(path: Path) -> str:
    """What to give instead of a path that is not there."""
    wanted = "give a run folder, or one of its checkpoints"
    suite = proper_name(str(path))
    algos = [algo for other, algo in pretrained_policies() if other == suite]
    if not algos:
        return wanted
    known = " or ".join(asked("policy", algo) for algo in algos)
    if not known.startswith("--"):  # in Python
        known = " or ".join(f"statewise.pretrained({suite!r}, {algo!r})" for algo in algos)
    return f"{wanted}. For a policy of this suite that comes with statewise, give {known}"


@typed
def load_policy(
    path: str | Path,
    best_safe: bool = False,
    imports: Sequence[str] = (),
    trust: bool = False,
) -> Policy:
    """Load the policy of a run folder, or of one of its checkpoint files.

    best_safe: the policy of the run's safest epoch instead of its last checkpoint.
    imports: the plug-ins that the run was trained with. They are imported only if you name them here,
        or set `trust`.
    """
    path = Path(path)
    if not path.exists():
        raise RunFolderError(f"there is no {path}: {_instead_of(path)}")
    folder = _run_of(path, best_safe) if path.is_file() else RunFolder.open(path)
    folder.check_policy()
    config = folder.config()
    folder.check_settings()
    import_for_run(folder.path, config, imports, trust)
    settings, algo_settings = read_config(config)
    kind, spec = get_algorithm(settings.algo), read_spec(config)

    def load(file: Path, state: dict[str, Any]) -> Policy:
        algo = kind(spec, algo_settings, settings.epochs, settings.seed)
        algo.load_policy(state["algo"])
        source = PolicyId(state["run"], file.name, state["epoch"], hash_policy(algo))
        return Policy(algo, settings, source)

    if path.is_file():
        return folder.load_one(path, load)
    if not best_safe:
        return folder.load(load)
    best = folder.checkpoints / checkpoint.BEST_SAFE
    if not best.exists():
        raise RunFolderError(
            f"{path} has no best-safe policy yet: it needs an epoch in which 50 episodes end, once "
            f"every world has taken as many steps as an episode may have"
        )
    return folder.load_one(best, load)


@contextmanager
def worlds_for(
    policy: Policy, num_envs: int, seed: int | None = None, suite: str | None = None
) -> Iterator[Env]:
    """Worlds on the CPU for a policy, of its own suite or of another one that has the same sizes."""
    settings = dataclasses.replace(
        policy.settings,
        suite=suite or policy.settings.suite,
        num_envs=num_envs,
        seed=policy.settings.seed if seed is None else seed,
        device="cpu",
        threads=0,
    )
    with build_env(settings) as env:
        policy.check(env.spec)
        yield env


def hash_policy(algo: Algorithm) -> str:
    """Return the hash of everything that decides the actions of an algorithm."""
    return policy_sha256(algo.state_dict(), to_json(algo.settings), algo.epochs)


def _run_of(file: Path, best_safe: bool) -> RunFolder:
    """The run that a checkpoint file belongs to."""
    path = file.absolute().parent.parent  # within checkpoints/ a name is enough
    if not (path / "config.json").is_file():
        raise RunFolderError(
            f"{file} is not in the checkpoints of a run: give a run folder, or one of its checkpoints"
        )
    if best_safe:
        raise RunFolderError(
            f"{file} is one policy already: best-safe chooses among those of a run; give the run "
            f"folder, or leave best-safe out"
        )
    return RunFolder.open(path)


def random_policy(env: Env, seed: int, hold: float = 0.1) -> Callable[[Step], Tensor]:
    """Uniform random actions `[B, a]`, each held for some seconds, so that they do not cancel out."""
    steps = max(1, round(hold / env.spec.control_dt))
    generator = torch.Generator().manual_seed(seed)
    shape = (env.num_envs, env.spec.action_size)
    actions, calls = torch.zeros(shape), 0

    def act(step: Step) -> Tensor:
        nonlocal actions, calls
        if calls % steps == 0:
            actions = 2 * torch.rand(shape, generator=generator) - 1
        calls += 1
        return actions.to(env.device)

    return act
