"""Someone else's algorithm on these suites: stable-baselines3's PPO, through Gymnasium.

    pip install stable-baselines3
    python examples/gymnasium_ppo.py

PPO knows nothing of costs: it learns to reach the goal and drives through hazards on its way.
"""

import gymnasium
import numpy as np
from stable_baselines3 import PPO

import statewise  # noqa: F401  (makes the suites known to Gymnasium)

SUITE = "statewise/Point-Hazard-8-v0"


def main(steps: int = 20_000, episodes: int = 20) -> PPO:
    """Train for `steps` and print what the policy does before and after."""
    env = gymnasium.make(SUITE)
    model = PPO("MlpPolicy", env, seed=0, device="cpu")
    report("before", model, episodes)
    model.learn(steps)
    report("after", model, episodes)
    return model


def report(when: str, model: PPO, episodes: int) -> None:
    """Print how `episodes` episodes went: the same ones each time."""
    env = gymnasium.make(SUITE)
    returns, costs, reached = np.zeros(episodes), np.zeros(episodes), np.zeros(episodes)
    for i in range(episodes):
        obs, _ = env.reset(seed=1 if i == 0 else None)
        ended = False
        while not ended:
            action, _ = model.predict(obs)
            obs, reward, terminated, truncated, info = env.step(action)
            returns[i] += reward
            costs[i] += info["cost"]
            ended = terminated or truncated
        reached[i] = info["success"]
    env.close()
    print(f"{when}: return {returns.mean():.2f}, cost {costs.mean():.2f}, "
          f"goal reached in {reached.mean():.0%} of {episodes} episodes")  # fmt: skip


if __name__ == "__main__":
    main()
