"""One small run and its bundle, for all tests of exports and monitors."""

from __future__ import annotations

from pathlib import Path

import pytest

import statewise


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = str(tmp_path_factory.mktemp("runs"))
    return statewise.train(
        "Point-Hazard-1", out=out, steps=640, steps_per_epoch=320, num_envs=16, hidden=(8,),
        critic_iterations=3, margin=(0.1,), tensorboard=False, quiet=True, threads=1,
    )  # fmt: skip


@pytest.fixture(scope="session")
def bundle(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    policy = statewise.load_policy(small_run)
    out = tmp_path_factory.mktemp("bundles") / "bundle"
    return policy.export(out, run=small_run, episodes=64, false_alarms=0.5, warnings=0.6)
