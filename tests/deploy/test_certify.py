"""`statewise certify` and `verify`: from a run folder to a certificate and back."""

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import statewise
from statewise.cli import main
from statewise.deploy.certificate import Certificate, CertificateError, page, read_certificate
from statewise.deploy.outcomes import FRESH, RARE, STRESS
from statewise.deploy.plan import Plan
from statewise.deploy.stress import stress_test
from statewise.deploy.verify import verify_certificate
from statewise.envs.vec_env import VecEnv
from statewise.training.evaluate import _FRESH
from statewise.training.recording import load_recordings

SMALL: dict[str, Any] = {
    "steps": 640, "steps_per_epoch": 320, "num_envs": 16, "tensorboard": False, "quiet": True,
    "hidden": (8,), "critic_iterations": 3, "threads": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return statewise.train("Point-Hazard-1", out=str(tmp_path_factory.mktemp("runs")), **SMALL)


@pytest.fixture(scope="module")
def found(run: Path) -> Certificate:
    domain = statewise.Domain({"mass": (0.9, 1.1), "noise": (0.0, 0.1), "delay": (0, 2)})
    return statewise.certify(run, 0.9, episodes=12, domain=domain)


@pytest.fixture
def saved(found: Certificate, tmp_path: Path) -> Path:
    return found.save(tmp_path)[0]


def test_a_certificate_says_what_was_claimed_found_and_tested(
    found: Certificate, run: Path
) -> None:
    content, (claim,) = found.content, found.claims
    assert (claim["constraint"], claim["max_violation"]) == ("hazard", 0.9)
    assert claim["verdict"] == found.verdict and found.episodes == 12
    assert claim["violations"] == len(claim["violating"]) <= 12
    assert 0 <= claim["low"] <= claim["rate"] <= claim["high"] <= 1
    assert (claim["smallest_clearance"] < 0) == (claim["violations"] > 0)
    assert content["domain"] == {"mass": [0.9, 1.1], "noise": [0.0, 0.1], "delay": [0, 2]}
    source = statewise.load_policy(run).source
    assert source is not None and content["policy"]["sha256"] == source.sha256
    assert re.fullmatch("[0-9a-f]{64}", content["model_sha256"])
    assert content["versions"]["packages"]["mujoco"] and content["seeds"]["family"] == FRESH


def test_a_certificate_is_verified_with_its_run(saved: Path, run: Path, capsys: Any) -> None:
    assert all(check.good for check in verify_certificate(saved, run))
    assert main(["verify", str(saved), str(run)]) == 0
    assert "verified" in capsys.readouterr().out


def test_a_changed_certificate_is_refused(saved: Path, run: Path) -> None:
    content = json.loads(saved.read_text())
    content["claims"][0]["violations"] = 0
    saved.write_text(json.dumps(content))
    with pytest.raises(CertificateError, match="was changed"):
        verify_certificate(saved, run)
    for damage in ("{", "[]", '{"format": 1}', '{"format": 9}'):
        saved.write_text(damage)
        with pytest.raises(CertificateError, match="cannot be read"):
            read_certificate(saved)


def test_bounds_that_do_not_follow_from_the_episodes_are_found(
    found: Certificate, tmp_path: Path, run: Path
) -> None:
    """Somebody who writes a new hash too is still found by the arithmetic, and by the episodes."""
    claim = found.claims[0] | {"high": 0.001}
    forged, _ = found.extended(claims=[claim]).save(tmp_path)
    bad = [check.what for check in verify_certificate(forged, run) if not check.good]
    assert bad == ["claim, hazard"]
    safe = set(range(12)) - set(found.claims[0]["violating"])
    other = found.claims[0] | {"violating": sorted(safe)}
    forged, _ = found.extended(claims=[other]).save(tmp_path)
    bad = [check.what for check in verify_certificate(forged, run) if not check.good]
    assert "episodes, hazard" in bad


def test_the_policy_of_another_run_is_found(saved: Path, tmp_path: Path) -> None:
    other = statewise.train("Point-Hazard-1", out=str(tmp_path), **(SMALL | {"seed": 1}))
    bad = [check for check in verify_certificate(saved, other) if not check.good]
    assert [check.what for check in bad] == ["policy"]


def test_the_page_needs_nothing_else_and_never_speaks_of_a_standard_met(found: Certificate) -> None:
    html = page(found)
    assert "http" not in html and "<script" not in html and "src=" not in html
    assert found.content["policy"]["sha256"] in html and "0.9 to 1.1" in html
    assert "What this does not say" in html and "certified to" not in html.lower()


def test_names_in_a_page_are_escaped(found: Certificate) -> None:
    claim = found.claims[0] | {"constraint": "<b>x</b>"}
    assert "<b>x</b>" not in page(found.extended(claims=[claim]))


def test_the_page_says_how_the_policy_was_chosen(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    checkpoints = copy / "checkpoints"
    shutil.copy(max(checkpoints.glob("epoch-*.ckpt")), checkpoints / "best-safe.ckpt")
    best = statewise.certify(copy, 0.9, episodes=1, best_safe=True)
    assert any(
        "chosen among those of its training run" in line for line in best.content["assumptions"]
    )


def test_episodes_are_none_of_training_or_evaluation() -> None:
    """Seeds of training are below 2**32, those of evaluation begin at 2**40."""
    families = [0, _FRESH, FRESH, STRESS, RARE]
    assert families == sorted(families) and all(
        high - low >= 2**32 for low, high in itertools.pairwise(families)
    )
    env = VecEnv("Point-Hazard-1", 4)
    starts = [env.reset(seed=family).obs for family in families]
    assert all(not one.equal(two) for one, two in itertools.pairwise(starts))


def test_the_same_certificate_comes_out_twice(found: Certificate, run: Path) -> None:
    domain = statewise.Domain({"mass": (0.9, 1.1), "noise": (0.0, 0.1), "delay": (0, 2)})
    again = statewise.certify(run, 0.9, episodes=12, domain=domain)
    assert again.claims == found.claims


def test_a_stress_test_sweeps_what_the_suite_has(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statewise.deploy.stress._POINTS", 2)
    monkeypatch.setattr("statewise.deploy.stress._EPISODES_PER_WORLD", 1)
    monkeypatch.setattr("statewise.deploy.stress.variations_in", lambda env: ["strength", "delay"])
    swept = stress_test(statewise.load_policy(run), Plan(max_violation=(0.5,)), episodes=4)
    found = [(row["variation"], row["value"]) for row in swept["rows"]]
    assert found == [("strength", 0.5), ("strength", 1.5), ("delay", 0.0), ("delay", 8.0)]
    assert len(swept["summary"]) == 2


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--max-violation", "0"], "--max-violation is 0"),
        (["--max-violation", "1"], "--max-violation is 1"),
        (["--max-violation", "nan"], "--max-violation is nan"),
        (["--max-violation", "0.1", "0.2"], "one for all, or one for each"),
        (["--confidence", "1"], "confidence is 1"),
        (["--episodes", "0"], "episodes is 0"),
        (["--vary", "friction=0.5..2"], "has no variation 'friction' with an effect. It has: mass"),
        (["--vary", "gravity=1"], "unknown variation 'gravity'"),
        (["--domain", "nowhere.json"], "nowhere.json"),
        (["--rare"], "Add --sampled, or vary noise or push"),
        (["--best-safe"], "best-safe"),
    ],
)
def test_mistakes_are_told_in_a_line_before_any_episode(
    args: list[str], told: str, run: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_step(*args: object) -> None:
        raise AssertionError("an environment was stepped")

    monkeypatch.setattr(VecEnv, "step", no_step)
    assert main(["certify", str(run), *args]) == 2
    captured = capsys.readouterr()
    assert told in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_a_run_without_a_policy_is_named(tmp_path: Path, capsys: Any) -> None:
    assert main(["certify", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err


def test_the_command_writes_both_files_and_prints_the_verdict(
    run: Path, tmp_path: Path, capsys: Any
) -> None:
    args = ["--max-violation", "0.99", "--budget", "8", "--out", str(tmp_path)]
    assert main(["certify", str(run), *args]) == 0
    told = capsys.readouterr().out
    assert "hazard" in told and "at confidence 95 %" in told
    assert (tmp_path / "certificate.html").exists()
    recordings, facts = load_recordings(tmp_path / "worst.npz")
    assert len(recordings) == 5 and facts.episodes <= 8
    assert read_certificate(tmp_path / "certificate.json").content["method"] == "sequential"
