"""A bundle runs on its own, says what it needs, and notices when it was changed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import statewise
from statewise.cli import main
from statewise.deploy import Policy, runtime, verify_bundle
from statewise.deploy.export import check_out, export_policy
from statewise.extras import MissingPackage

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def episode(run: Path, steps: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Observations, clearances, costs and the actions of the torch policy, with a violation."""
    policy = statewise.load_policy(run)
    env = statewise.make_env("Point-Hazard-1", 1, seed=3, margin=0.1)
    step = env.reset()
    env.hazards[0, 0, :2] = env.robot_pos[0, :2] + 0.3
    rows = [(step.obs[0], step.clearance[0], step.cost[0], policy(step.obs[0]))]
    for _ in range(steps):
        action = env.spec.action_size * [0.2]
        step = env.step(step.obs.new_tensor([action]))
        rows.append(
            (step.obs[0], step.clearance[0], step.cost[0], policy(step.obs[0], step.cost[0]))
        )
    obs, clearance, cost, actions = (np.stack(part) for part in zip(*rows, strict=True))
    assert cost.max() > 0.2
    return obs, clearance, cost, actions


def test_an_exported_policy_acts_as_the_trained_one_through_an_episode(
    small_run: Path, bundle: Path
) -> None:
    obs, clearance, cost, actions = episode(small_run)
    policy = Policy(bundle)
    found = [policy(obs[0])]
    found += [policy(o, c) for o, c in zip(obs[1:], clearance[1:], strict=True)]
    np.testing.assert_allclose(np.stack(found), actions, atol=1e-5)
    assert policy.maximum is not None
    assert float(policy.maximum[0, 0]) == pytest.approx(cost.max(), abs=1e-6)
    assert policy.cost_value is not None and policy.cost_value.shape == (1,)
    policy.reset()
    np.testing.assert_allclose(policy(obs[0]), actions[0], atol=1e-5)


def test_a_batch_is_as_good_as_one_after_the_other(small_run: Path, bundle: Path) -> None:
    obs, clearance, cost, _ = episode(small_run)
    exported, trained = Policy(bundle), statewise.load_policy(small_run)
    for policy, measured in ((exported, clearance), (trained, cost)):
        alone: list[list[np.ndarray]] = []
        for row in (5, 6):
            policy.reset()
            first = policy(obs[row])
            alone.append([first, policy(obs[row + 10], measured[row + 10])])
        policy.reset()
        both = [policy(obs[5:7]), policy(obs[15:17], measured[15:17])]
        np.testing.assert_allclose(np.stack(both, axis=1), np.array(alone), atol=1e-6)
        policy.reset(np.array([True, False]))  # the first row begins anew, whatever it is told
        again = policy(obs[5:7], measured[15:17])
        np.testing.assert_allclose(again[0], alone[0][0], atol=1e-6)
        with pytest.raises(ValueError, match=r"call reset\(\) when new"):
            policy(obs[:3], measured[:3])


def test_a_bundle_needs_neither_torch_nor_statewise(bundle: Path, small_run: Path) -> None:
    obs, clearance, _, actions = episode(small_run, steps=3)
    script = f"""
import sys, json
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "statewise", "mujoco", "scipy"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, {str(bundle)!r})
from runtime import Monitor, Policy
policy, monitor = Policy({str(bundle)!r}), Monitor.from_bundle({str(bundle)!r}, clock=None)
found = []
for i, (obs, clearance) in enumerate(json.load(sys.stdin)):
    found.append(policy(obs, clearance if i else None).tolist())
    assert monitor.check(obs, clearance, found[-1], policy.cost_value).level != ""
print(json.dumps(found))
"""
    data = json.dumps([[o.tolist(), c.tolist()] for o, c in zip(obs, clearance, strict=True)])
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], input=data, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), actions, atol=1e-5)


def test_costs_that_are_needed_are_asked_for(bundle: Path) -> None:
    policy = Policy(bundle)
    obs = np.zeros(policy.obs_size)
    policy(obs)
    with pytest.raises(ValueError, match="give the clearance of the step just taken"):
        policy(obs)
    with pytest.raises(ValueError, match="one for each constraint"):
        policy(obs, [0.1, 0.2])
    with pytest.raises(ValueError, match="it must be finite"):
        policy(obs, np.nan)
    with pytest.raises(ValueError, match=r"the observation has shape \(3,\)"):
        policy(obs[:3], 0.1)
    with pytest.raises(ValueError, match="not finite"):
        policy(obs + np.nan, 0.1)


@pytest.mark.parametrize("name", ["policy.onnx", "runtime.py", "README.md"])
def test_a_changed_file_is_noticed(
    copy: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(copy)]) == 0
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} was changed after the export"):
        Policy(copy)
    with pytest.raises(SystemExit) as stopped:
        main(["verify", str(copy)])
    assert stopped.value.code == 1 and "was changed" in capsys.readouterr().out
    (copy / name).unlink()
    with pytest.raises(ValueError, match=f"has no {name}"):
        verify_bundle(copy)


def test_a_changed_limit_or_a_foreign_certificate_is_noticed(copy: Path) -> None:
    (copy / "certificate.json").write_text("{}")
    with pytest.raises(ValueError, match="added after the export"):
        verify_bundle(copy)
    path = copy / "policy.json"
    facts = json.loads(path.read_text())
    facts["monitor"]["stop"][0] = 1e9
    path.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="its hash does not fit"):
        verify_bundle(copy)
    path.write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        verify_bundle(copy)
    path.unlink()
    with pytest.raises(ValueError, match="is not a bundle"):
        verify_bundle(copy)


def test_an_old_runtime_or_format_is_named(
    bundle: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "__version__", "1.5.2")
    with pytest.raises(ValueError, match=r"onnxruntime 1.5.2 is too old .*opset 13.* 1.6 or newer"):
        Policy(bundle)
    facts = json.loads((copy / "policy.json").read_text()) | {"format": "statewise bundle 7"}
    (copy / "policy.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="'statewise bundle 7': this runtime reads"):
        Policy(copy)


def test_a_folder_that_is_not_a_bundle_is_left_alone(
    copy: Path, small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    check_out(other)
    (other / "thesis.tex").write_text("years of work")
    assert main(["export", str(small_run), "--out", str(other)]) == 2
    assert "is not a bundle" in capsys.readouterr().err
    assert [file.name for file in other.iterdir()] == ["thesis.tex"]
    check_out(copy)  # a bundle may be replaced


def test_a_run_without_a_policy_is_refused(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(small_run / "config.json", bare)
    assert main(["export", str(bare), "--out", str(tmp_path / "out")]) == 2
    assert "checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_missing_packages_are_named(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    with pytest.raises(
        MissingPackage, match=r"onnx and onnxruntime: pip install 'statewise\[export\]'"
    ):
        export_policy(None, tmp_path / "out")  # type: ignore[arg-type]


def test_a_certificate_of_this_policy_goes_along(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: Path
) -> None:
    limits = json.loads((bundle / "policy.json").read_text())["monitor"]
    monkeypatch.setattr("statewise.deploy.export.calibrate", lambda *_: limits)
    policy = statewise.load_policy(small_run)
    assert policy.source is not None
    run, out = tmp_path / "run", tmp_path / "out"
    run.mkdir()
    (run / "certificate.json").write_text(json.dumps({"policy": {"sha256": policy.source.sha256}}))
    policy.export(out, run=run)
    assert (out / "certificate.json").read_bytes() == (run / "certificate.json").read_bytes()
    assert "certificate.json" in verify_bundle(out)["manifest"]
    (run / "certificate.json").write_text(json.dumps({"policy": {"sha256": "another"}}))
    policy.export(out, run=run)  # replaces the bundle
    assert not (out / "certificate.json").exists()
    verify_bundle(out)


def test_policy_json_says_how_to_connect_a_robot(bundle: Path) -> None:
    facts = verify_bundle(bundle)
    observation, clearance, maximum = facts["inputs"]
    ends = [(block["start"], block["stop"]) for block in observation["blocks"]]
    assert [0, *(stop for _, stop in ends[:-1])] == [start for start, _ in ends]
    assert ends[-1][1] == observation["size"]
    assert {b["name"]: b["unit"] for b in observation["blocks"]}["gyro"] == "rad/s"
    assert (clearance["name"], clearance["units"], clearance["margin"]) == (
        "clearance",
        ["m"],
        [0.1],
    )
    assert maximum["at_start"] == 0.0
    assert [out["name"] for out in facts["outputs"]] == ["action", "new_maximum", "cost_value"]
    assert facts["actuator_names"] == ["thrust", "turn"] and facts["joint_names"] == ["yaw"]
    assert facts["action_scale"] == [1.0, 1.0] and facts["control_rate"] == pytest.approx(50.0)
    assert facts["agreement"] <= 1e-5
    model = onnx.load(bundle / "policy.onnx")
    known = {entry.key: entry.value for entry in model.metadata_props}
    assert known["action_scale"] == "1.0,1.0" and "default_joint_pos" in known
    assert sum(file.stat().st_size for file in bundle.iterdir()) < 1e6


def test_the_example_of_the_readme_is_short_and_runs(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (bundle / "README.md").read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 20
    sent: list[np.ndarray] = []

    def send_action(action: np.ndarray) -> None:
        sent.append(action)
        if len(sent) == 3:
            raise KeyboardInterrupt

    monkeypatch.chdir(bundle)
    monkeypatch.setitem(sys.modules, "runtime", runtime)
    size = verify_bundle(bundle)["inputs"][0]["size"]
    given: dict[str, Any] = {
        "read_observation": lambda: np.zeros(size),
        "read_clearance": lambda: [0.5],
        "send_action": send_action,
    }
    with pytest.raises(KeyboardInterrupt):
        exec(code, given)
    assert all(action.shape == (2,) for action in sent)
