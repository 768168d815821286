"""The `README.md` of a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT = """# {algo} on {suite}

An exported policy of statewise {statewise}. It needs Python with numpy and onnxruntime {runtime} or
newer, and neither torch nor statewise.

| file | what it is |
|---|---|
| `policy.onnx` | the policy: observation scaling, running maximum, networks and corrections |
| `policy.json` | names, order, units, scales, limits of the monitor, hashes of all files |
| `runtime.py` | `Policy` and `Monitor` |

```python
import time

from runtime import Monitor, Policy

policy = Policy("{folder}")                    # checks the hashes of all files
monitor = Monitor.from_bundle("{folder}", fallback="brake")
policy.reset()
monitor.reset()
{measured} = None                          # nothing is measured before the first step
while True:
    started = time.monotonic()
    observation = read_observation()           # {obs_size} numbers, see policy.json
    verdict = monitor.act(policy, observation, {measured})
    if verdict.level != "ok":
        print(verdict.level, *verdict.reasons)
    send_action(verdict.action)                # {action_size} numbers from -1 to 1
    time.sleep(max(0.0, {control_dt:g} - (time.monotonic() - started)))
    {measured} = read_{measured}()               # of: {constraints}
```

The policy acts at {control_rate:g} Hz. The control of each actuator is `action_offset + action_scale *
action`, with the numbers from `policy.json`. {needs}
"""


def readme(facts: Mapping[str, Any]) -> str:
    """Return the text: what the files are, and an example."""
    needs = (
        f"The policy acts on the {facts['measured']}: it has to be measured at every step."
        if facts["needs_cost"]
        else f"The policy itself does not use the {facts['measured']}; the monitor does."
    )
    if not facts["constraints"]:
        needs = "There are no constraints."
    return _TEXT.format(
        **{key: facts[key] for key in ("algo", "suite", "statewise", "control_dt", "control_rate")},
        runtime=facts["onnx"]["onnxruntime"],
        folder=".",
        measured=facts["measured"],
        obs_size=facts["inputs"][0]["size"],
        action_size=facts["outputs"][0]["size"],
        constraints=", ".join(facts["constraints"]) or "nothing",
        needs=needs,
    )
