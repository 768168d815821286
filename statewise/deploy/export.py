"""Exports a policy to a bundle: a folder that runs without torch and statewise."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from statewise.algos import Algorithm
from statewise.deploy import runtime
from statewise.deploy.cost_values import act_and_predict, cost_value_meaning
from statewise.deploy.facts import Measured, charges_of, observation_blocks, robot_facts
from statewise.deploy.monitor import calibrate
from statewise.deploy.readme import readme
from statewise.envs.env import Env
from statewise.extras import need
from statewise.runs.files import as_json, read_bytes, write_atomically
from statewise.runs.folder import check_folder
from statewise.runs.verify import Check
from statewise.settings import asked
from statewise.training.policy import Policy, worlds_for
from statewise.types import Step
from statewise.version import __version__

log = logging.getLogger("statewise")

ABOUT, CERTIFICATE = "policy.json", "certificate.json"
_AGREEMENT = 1e-5
"""How far the actions of the graph may be from those of torch."""


def export_policy(
    policy: Policy,
    out: str | Path,
    run: str | Path | None = None,
    measured: Literal["auto", "clearance", "cost"] = "auto",
    false_alarms: float = 0.01,
    warnings: float = 0.1,
    episodes: int = 1500,
    seed: int = 0,
    opset: int | None = None,
) -> Path:
    """Write a policy and everything that it needs on a robot to a folder, and return the folder.

    run: the run folder, whose certificate goes along if it is about this policy.
    measured: what policy and monitor are given of each constraint: its clearance, or the learner's
        cost. "auto" takes clearances where the environment derives costs from them.
    false_alarms, warnings: shares of the safe episodes that the monitor may stop, and warn in.
    episodes: fresh episodes that the monitor's limits come from; seed: of their layouts.
    opset: ONNX operator set of the graph. Default: the oldest that has all operators.
    """
    need("exporting", "export")
    from statewise.deploy.graph import OPSET, RUNTIMES
    from statewise.deploy.policy_graph import build_model

    out = Path(out)
    check_out(out)
    with worlds_for(policy, 1, seed) as env:
        charges = charges_of(env)
        kind = _measured(measured, charges, policy)
        facts = _facts(policy, env, kind)
    opset = OPSET if opset is None else opset
    model = build_model(policy.algo, kind, charges or (), opset)
    facts["onnx"] = {
        "opset": opset, "ir_version": model.ir_version, "onnxruntime": RUNTIMES[opset],
    }  # fmt: skip
    facts["monitor"] = calibrate(policy, kind, false_alarms, warnings, episodes, seed)
    _attach(model, facts)
    files = {"policy.onnx": model.SerializeToString(), "README.md": readme(facts).encode()}
    session = runtime.open_session(files["policy.onnx"], RUNTIMES[opset], opset)
    facts["agreement"] = _agreement(session, policy.algo, kind, charges or ())
    files["runtime.py"] = Path(runtime.__file__).read_bytes()
    certificate = _certificate(policy, run)
    if certificate is not None:
        files[CERTIFICATE] = certificate
    _write(out, files, facts)
    return out


def verify_files(path: Path) -> list[Check]:
    """Check a bundle, for `statewise verify`."""
    try:
        facts = runtime.verify_bundle(path)
    except runtime.BundleError as error:
        return [Check("bundle", str(error), False)]
    checks = [Check(ABOUT, f"{facts['algo']} on {facts['suite']}, statewise {facts['statewise']}")]
    return [*checks, *(Check(name, "as exported") for name in facts["manifest"])]


def _is_bundle(path: Path) -> bool:
    """Whether a folder holds a bundle, whole or not."""
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and str(about.get("format", "")).startswith("statewise bundle")


def check_out(out: Path) -> None:
    """Raise ValueError if a folder may not be written: it holds something that is not a bundle."""
    check_folder(asked("out"), out)
    if out.is_dir() and any(out.iterdir()) and not _is_bundle(out):
        raise ValueError(
            f"{out} exists and is not a bundle: nothing in it is overwritten. Choose another folder"
        )


def _measured(asked: str, charges: Any, policy: Policy) -> Measured:
    if asked == "clearance" and charges is None:
        raise ValueError(
            f"{policy.spec.name} does not derive its costs from clearances: export with measured='cost'"
        )
    return "cost" if asked == "cost" or charges is None else "clearance"


def _facts(policy: Policy, env: Env, measured: Measured) -> dict[str, Any]:
    """Return the content of `policy.json`, without the monitor and the hashes."""
    spec, names = policy.spec, list(policy.spec.cost_names)
    source = dataclasses.asdict(policy.source) if policy.source is not None else None
    inputs: list[dict[str, Any]] = [
        {"name": "observation", "size": spec.obs_size, "blocks": observation_blocks(env)}
    ]
    outputs: list[dict[str, Any]] = [
        {"name": "action", "size": spec.action_size, "low": -1.0, "high": 1.0}
    ]
    if names:
        units = list(spec.clearance_units) if measured == "clearance" else [""] * len(names)
        about = {"name": measured, "size": len(names), "constraints": names, "units": units}
        inputs.append(about | {"margin": list(spec.margin)})
        inputs.append({"name": "maximum", "size": len(names), "at_start": 0.0})
        outputs.append({"name": "new_maximum", "size": len(names)})
    if meaning := cost_value_meaning(policy.algo):
        outputs.append({"name": "cost_value", "size": len(names), "meaning": meaning})
    return {
        "format": runtime.FORMAT,
        "statewise": __version__,
        "suite": spec.name,
        "algo": policy.algo.name,
        "source": source,
        "run_path": source["run"] if source else "",
        "constraints": names,
        "measured": measured,
        "needs_cost": policy.needs_cost,
        "control_dt": spec.control_dt,
        "control_rate": 1.0 / spec.control_dt,
        "inputs": inputs,
        "outputs": outputs,
        **robot_facts(env),
    }


def _attach(model: Any, facts: Mapping[str, Any]) -> None:
    """Write the keys that mjlab's exporter uses to the metadata of the model, as text."""
    keys = (
        "run_path", "joint_names", "joint_stiffness", "joint_damping", "default_joint_pos",
        "command_names", "observation_names", "action_scale",
    )  # fmt: skip
    for key in keys:
        value = facts[key]
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        model.metadata_props.add(key=key, value=text)


def _agreement(
    session: Any, algo: Algorithm, measured: Measured, charges: Any, rows: int = 256
) -> float:
    """The largest difference between the actions of the graph and of torch, on random inputs.

    ValueError if more than one in a hundred differ by more than `_AGREEMENT`. A few may: a safety
    layer that corrects step by step has thresholds, at which the last digit decides.
    """
    spec, generator = algo.spec, torch.Generator().manual_seed(0)
    obs = torch.zeros(rows, spec.obs_size)
    live, scaler = spec.num_live, algo.scaler
    noise = torch.randn(rows, live, generator=generator)
    obs[:, :live] = (scaler.mean[:live] + noise / scaler.factor[:live]).float()
    cost, before = (
        0.3 * (torch.rand(rows, spec.num_costs, generator=generator) - 0.5).clamp(min=0.0)
        for _ in range(2)
    )
    feeds = {"observation": obs.numpy()}
    if spec.num_costs:
        given = cost
        if measured == "clearance":
            contact = torch.tensor([charge == "contact" for charge in charges])
            cost = torch.where(contact, (cost > 0).float(), cost)
            given = torch.tensor(spec.margin) - cost
        feeds |= {measured: given.float().numpy(), "maximum": before.numpy()}
    found = session.run(["action"], feeds)[0]
    no, largest = torch.zeros(rows, dtype=torch.bool), torch.maximum(cost, before)
    step = Step.from_costs(obs, torch.zeros(rows), cost, before, largest, no, no, obs, no)
    far = np.abs(found - act_and_predict(algo, step)[0].numpy()).max(axis=1)
    if (far > _AGREEMENT).mean() > 0.01:
        raise ValueError(
            f"the exported graph differs from the policy by up to {far.max():.2g}: nothing was written"
        )
    return float(far.max())


def _certificate(policy: Policy, run: str | Path | None) -> bytes | None:
    """The certificate of the run folder, if there is one and it is about this policy."""
    path = None if run is None else Path(run) / CERTIFICATE
    if path is None or not path.is_file():
        return None
    content = read_bytes(path)
    try:
        about = json.loads(content)["policy"]["sha256"]
    except (ValueError, KeyError, TypeError):
        about = None
    if policy.source is None or about != policy.source.sha256:
        log.warning("%s is not about this policy: it is left out of the bundle", path)
        return None
    return content


def _write(out: Path, files: Mapping[str, bytes], facts: dict[str, Any]) -> None:
    """Write the files, and `policy.json` with their hashes last."""
    facts["manifest"] = {n: hashlib.sha256(content).hexdigest() for n, content in files.items()}
    facts["sha256"] = runtime.facts_digest(facts)
    if CERTIFICATE not in files:
        (out / CERTIFICATE).unlink(missing_ok=True)
    for name, content in files.items():
        write_atomically(out / name, content)
    write_atomically(out / ABOUT, as_json(facts))
