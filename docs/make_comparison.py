"""Draw two policies on the same layouts, and the Maximum MDP of an episode.

    python docs/make_comparison.py UNSAFE_RUN SAFE_RUN [FOLDER]

Writes `comparison.webp`, an animation, and `maximum-mdp.svg`. The layouts are the first ones of their
seeds. None was chosen by what the policies do there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

import statewise
from statewise import Policy, VecEnv
from statewise.envs.render import RED, Renderer, View
from statewise.types import Step

PANEL = (360, 300)
TITLE = 34
LAYOUTS = range(6)
EVERY = 4
"""Steps from one frame to the next"""
PAUSE = 8
"""Frames that the end of an episode stays"""
INK, PAPER = (34, 38, 46), (255, 255, 255)


@dataclass
class Panel:
    """One policy on one side of the picture."""

    policy: Policy
    violated: int = 0
    begun: int = 0
    cost: list[float] = field(default_factory=list)

    def start(self, seed: int) -> None:
        settings = self.policy.settings
        self.env = VecEnv(settings.suite, 1, seed, compact=settings.compact, autoreset=False)
        self.step: Step = self.env.reset()
        self.over, self.now, self.most, self.cost = False, 0.0, 0.0, []
        self.begun += 1
        self.renderer = Renderer(self.env, *PANEL, View((0.0, -0.1, 0.0), 4.9, 90.0, -54.0), False)

    def advance(self) -> None:
        if self.over:
            return
        self.step = self.env.step(self.policy.algo.act(self.step, None).executed)
        self.now = float(self.step.true_cost.max())
        self.violated += self.most == 0 and self.now > 0
        self.most = max(self.most, self.now)
        self.over = bool(self.step.ended)
        self.cost.append(self.now)

    def draw(self) -> Image.Image:
        picture = Image.new("RGB", (PANEL[0], PANEL[1] + TITLE), PAPER)
        picture.paste(Image.fromarray(self.renderer.frame(overlay=False)), (0, TITLE))
        pen = ImageDraw.Draw(picture)
        bold, plain = ImageFont.load_default(19), ImageFont.load_default(15)
        pen.text((8, TITLE / 2), self.policy.algo.title, INK, bold, anchor="lm")
        text = f"violations in {self.violated} of {self.begun} episodes"
        pen.text((PANEL[0] - 8, TITLE / 2), text, RED if self.violated else INK, plain, anchor="rm")
        if self.now > 0:
            pen.rectangle((0, TITLE, PANEL[0] - 1, TITLE + PANEL[1] - 1), outline=RED, width=5)
            pen.rectangle((8, TITLE + 10, 92, TITLE + 34), RED)
            pen.text((50, TITLE + 22), "violation", PAPER, plain, anchor="mm")
        if self.over:
            pen.text((PANEL[0] / 2, TITLE + PANEL[1] - 18), "goal reached", INK, plain, anchor="mm")
        return picture


def animate(policies: list[Policy], path: Path) -> None:
    """Both policies side by side, layout after layout."""
    panels, frames = [Panel(policy) for policy in policies], list[Image.Image]()
    for seed in LAYOUTS:
        for panel in panels:
            panel.start(1000 + seed)
        left = 1 + PAUSE
        while left:
            frame = Image.new("RGB", (2 * PANEL[0] + 6, PANEL[1] + TITLE), PAPER)
            for i, panel in enumerate(panels):
                frame.paste(panel.draw(), (i * (PANEL[0] + 6), 0))
            frames.append(frame)
            for _ in range(EVERY):
                for panel in panels:
                    panel.advance()
            left -= all(panel.over for panel in panels)
        for panel in panels:
            panel.renderer.close()
    duration = round(1000 * EVERY * panels[0].env.spec.control_dt)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=duration, loop=0,
                   quality=60, method=4)  # fmt: skip
    print(f"{path}  {path.stat().st_size / 1000:.0f} kB, {len(frames)} frames")


def maximum_mdp(policy: Policy, path: Path) -> None:
    """Cost, running maximum and increments over an episode with several violations."""
    import matplotlib.pyplot as plt

    costs = max(_costs(policy, 1024), key=_telling)
    most = np.maximum.accumulate(costs)
    rise = np.diff(most, prepend=0.0)
    steps = np.arange(len(costs))
    plt.rcParams |= {"svg.fonttype": "path", "svg.hashsalt": "statewise", "font.size": 10}
    figure, axes = plt.subplots(3, 1, figsize=(7, 5.2), sharex=True, layout="constrained")
    grey, orange, blue, red = "#808890", "#e8590c", "#228be6", "#e03131"
    axes[0].fill_between(steps, costs, color=orange, alpha=0.25, linewidth=0)
    axes[0].plot(steps, costs, color=orange)
    axes[0].step(steps, most, color=blue, linewidth=1, linestyle="--", where="post")
    axes[1].fill_between(steps, most, color=blue, alpha=0.15, linewidth=0, step="post")
    axes[1].step(steps, most, color=blue, where="post")
    axes[2].vlines(steps[rise > 0], 0, rise[rise > 0], color=red, linewidth=2)
    titles = ("cost $C_t$: how deep the robot is in a hazard",
              "running maximum $M_{t+1} = \\max(M_t, C_t)$: the worst so far",
              "increment $D_t = M_{t+1} - M_t$: paid for a new record only")  # fmt: skip
    records = [axis.axvspan(first - 0.5, last + 0.5, color=red, alpha=0.08, linewidth=0)
               for first, last in _runs(rise > 0) for axis in axes]  # fmt: skip
    assert records, "the episode has no violation"
    low = next((a + b) // 2 for a, b in _runs(costs > 0) if not (rise[a : b + 1] > 0).any())
    axes[0].annotate("below the record:\nit costs nothing more", (low, costs[low]), color=grey,
                     fontsize=9, xytext=(0, 28), textcoords="offset points", ha="center",
                     arrowprops={"arrowstyle": "->", "color": grey})  # fmt: skip
    for axis, title, colour in zip(axes, titles, (orange, blue, red), strict=True):
        axis.set_title(title, color=colour, loc="left", fontsize=10)
        axis.tick_params(colors=grey)
        axis.set_facecolor("none")
        for spine in axis.spines.values():
            spine.set_color(grey)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0.0)
    axes[2].set_xlabel("step of the episode", color=grey)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    print(f"{path}  {path.stat().st_size / 1000:.0f} kB")


def _costs(policy: Policy, episodes: int) -> list[np.ndarray]:
    """[T] the costs of each episode"""
    settings = policy.settings
    env = VecEnv(settings.suite, episodes, 2000, compact=settings.compact, autoreset=False)
    step, rows = env.reset(), list[torch.Tensor]()
    length = torch.full((episodes,), env.spec.max_episode_steps)
    for t in range(300):
        step = env.step(policy.algo.act(step, None).executed)
        rows.append(step.true_cost.amax(dim=1))
        length = torch.where(step.ended, length.clamp(max=t + 1), length)
    costs = torch.stack(rows).numpy()
    return [costs[:n, i] for i, n in enumerate(length.tolist()) if n <= 300]


def _runs(marked: np.ndarray) -> list[tuple[int, int]]:
    """The first and last index of each stretch that is marked."""
    edges = np.diff(np.concatenate([[0], marked.astype(int), [0]])).nonzero()[0]
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _telling(costs: np.ndarray) -> tuple[bool, int, int]:
    """How well an episode explains: it has a violation below the record, and sets several records."""
    up = np.diff(np.maximum.accumulate(costs), prepend=0.0) > 0
    below = [1 for a, b in _runs(costs > 0) if not up[a : b + 1].any()]
    return bool(below), min(len(_runs(up)), 2), -len(costs)


def main(unsafe: str, safe: str, folder: Path) -> None:
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    policies = [statewise.load_policy(path) for path in (unsafe, safe)]
    animate(policies, folder / "comparison.webp")
    maximum_mdp(policies[0], folder / "maximum-mdp.svg")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:3], Path(sys.argv[3] if len(sys.argv) > 3 else "docs/pictures"))  # type: ignore[call-arg]
