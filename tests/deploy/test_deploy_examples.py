"""The examples in examples/deploy run: C++ where onnxruntime's headers are, ROS 2 with a stand-in."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from statewise.deploy import Policy, runtime

EXAMPLES = Path(__file__).parents[2] / "examples" / "deploy"


def header_folder() -> Path | None:
    """Where `onnxruntime_c_api.h` is: the wheel of onnxruntime does not bring it."""
    own = os.environ.get("ONNXRUNTIME_INCLUDE")
    usual = [Path(p) / "include" for p in ("/usr", "/usr/local", "/opt/onnxruntime")]
    places = [Path(own)] if own else [q for p in usual for q in (p, p / "onnxruntime")]
    return next((p for p in places if (p / "onnxruntime_c_api.h").is_file()), None)


def steps(policy: Policy, count: int = 20) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    obs = generator.normal(size=(count, policy.obs_size)).astype(np.float32)
    clearance = generator.uniform(-0.3, 0.7, size=(count, 1)).astype(np.float32)
    return obs, clearance


def test_the_cpp_example_gives_the_same_actions(bundle: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    headers, compiler = header_folder(), shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    if headers is None:
        pytest.skip(
            "no onnxruntime_c_api.h: set ONNXRUNTIME_INCLUDE to the include folder of a release"
        )
    libraries = Path(onnxruntime.__file__).parent.joinpath("capi").glob("libonnxruntime.so.*")
    library = next(libraries, None)
    if library is None:
        pytest.skip("this onnxruntime has no shared library")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (tmp_path / name).symlink_to(library)
    program = tmp_path / "policy"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{headers}", f"-L{tmp_path}"]
    subprocess.run(
        [compiler, *flags, str(EXAMPLES / "policy.cpp"), "-lonnxruntime", "-o", str(program)],
        check=True,
    )

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(program), str(bundle / "policy.onnx")], input=text, capture_output=True, text=True,
            env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
        )  # fmt: skip

    policy = Policy(bundle)
    obs, clearance = steps(policy)
    expected = [policy(obs[0])]
    expected += [policy(o, c) for o, c in zip(obs[1:], clearance[1:], strict=True)]
    rows = [obs[0], *(np.concatenate(pair) for pair in zip(obs[1:], clearance[1:], strict=True))]
    lines = [" ".join(f"{x:.9g}" for x in row) for row in rows]
    done = run("\n".join([*lines, "reset", lines[0]]))
    assert done.returncode == 0, done.stderr
    found = np.array([[float(x) for x in line.split()] for line in done.stdout.splitlines()])
    np.testing.assert_allclose(found, [*expected, expected[0]], atol=1e-6)
    assert "wrong size" in run(f"{lines[0]}\n{lines[0]}").stderr  # the second needs a clearance
    assert "numbers of one step" in run("0.1 x").stderr


class StandIn(SimpleNamespace):
    """Takes the place of every class of ROS 2 that the node uses."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(**{"header": SimpleNamespace(stamp=None)} | given)


class FakeNode:
    parameters: dict[str, Any] = {}  # noqa: RUF012
    time = 0.0

    def __init__(self, name: str) -> None:
        self.sent: list[Any] = []

    def declare_parameter(self, name: str, default: Any) -> Any:
        return SimpleNamespace(value=self.parameters.get(name, default))

    def create_subscription(self, *args: Any) -> None: ...

    def create_service(self, *args: Any) -> None: ...

    def create_timer(self, *args: Any) -> None: ...

    def create_publisher(self, *args: Any) -> Any:
        return SimpleNamespace(publish=self.sent.append)

    def get_clock(self) -> Any:
        now = SimpleNamespace(nanoseconds=self.time * 1e9, to_msg=lambda: self.time)
        return SimpleNamespace(now=lambda: now)


def test_the_ros_node_acts_on_observations_and_stops_when_they_stay_away(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    levels = {"OK": 0, "WARN": 1, "ERROR": 2}
    status = type("DiagnosticStatus", (StandIn,), levels)
    trigger = SimpleNamespace(Request=StandIn, Response=StandIn)
    modules = {
        "rclpy": {},
        "rclpy.node": {"Node": FakeNode},
        "diagnostic_msgs": {},
        "diagnostic_msgs.msg": {
            "DiagnosticArray": StandIn,
            "DiagnosticStatus": status,
            "KeyValue": StandIn,
        },
        "std_msgs": {},
        "std_msgs.msg": {"Float32MultiArray": StandIn, "Float64MultiArray": StandIn},
        "std_srvs": {},
        "std_srvs.srv": {"Trigger": trigger},
    }
    for name, content in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
    monkeypatch.setitem(sys.modules, "runtime", runtime)
    spec = importlib.util.spec_from_file_location("ros2_node", EXAMPLES / "ros2_node.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    FakeNode.parameters = {"bundle": str(bundle)}
    node = module.PolicyNode()
    node.on_watchdog()
    assert node.sent == []
    policy = Policy(bundle)
    centre = np.array(policy.facts["monitor"]["observation"]["centre"], dtype=np.float32)
    node.on_observation(StandIn(data=centre.tolist()))
    control, diagnostics = node.sent
    assert diagnostics.status[0].message in ("ok", "warning", "stop")
    if diagnostics.status[0].message != "stop":
        np.testing.assert_allclose(control.data, policy(centre), atol=1e-6)
    node.time += 1.0
    node.on_watchdog()
    assert node.sent[-1].status[0].level == levels["ERROR"]
    assert "no observation was given" in [v.value for v in node.sent[-1].status[0].values]
    node.on_reset(None, StandIn())
    assert not node.monitor.stopped
