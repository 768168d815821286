"""The committed results are those of the present code."""

import dataclasses
import json
from importlib.metadata import version
from pathlib import Path

import pytest

from statewise.training.config import read_config
from statewise.training.loop import Training

RUN = Path(__file__).parent.parent / "results/margin/Point-Hazard-8/scpo/seed-0"
EPOCHS = 20


@pytest.mark.slow
def test_a_run_of_the_results_repeats_to_the_digit(tmp_path: Path) -> None:
    """If this fails, SCPO has changed since its results were made (or this processor rounds otherwise):
    make them anew, and say so."""
    made_with = json.loads((RUN / "environment.json").read_text())["packages"]
    for name in ("torch", "mujoco", "numpy"):
        if made_with[name].split("+")[0] != version(name).split("+")[0]:
            pytest.skip(f"made with {name} {made_with[name]}, this is {version(name)}")
    said = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()[:EPOCHS]]
    settings, algorithm = read_config(json.loads((RUN / "config.json").read_text()))
    training = Training.start(dataclasses.replace(settings, out=str(tmp_path)), algorithm)
    found = [training.run_epoch() for _ in said]
    training.folder.close()
    assert said[-1]["cost/rate"] > 0.0
    for now, then in zip(found, said, strict=True):
        assert {key: _rounded(now[key]) for key in then} == then


def _rounded(value: float | None) -> float | None:
    """As exported."""
    return value if value is None or isinstance(value, int) else float(f"{value:.5g}")
