"""A ROS 2 node that runs a bundle: a sketch to adapt to your robot. Put `runtime.py` beside it.

    python ros2_node.py --ros-args -p bundle:=/path/to/bundle

It subscribes to `observation` and to `clearance` or `cost` (Float32MultiArray, in the order of
policy.json). For each observation it publishes `control` (Float64MultiArray, one number for each
actuator) and `diagnostics`. If observations stay away, a watchdog sends what the fallback does.
"""

from __future__ import annotations

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node
from runtime import Monitor, Policy, Verdict
from std_msgs.msg import Float32MultiArray, Float64MultiArray
from std_srvs.srv import Trigger

LEVELS = {
    "ok": DiagnosticStatus.OK,
    "warning": DiagnosticStatus.WARN,
    "stop": DiagnosticStatus.ERROR,
}


class PolicyNode(Node):
    """Answers each observation with an action, under a monitor."""

    def __init__(self) -> None:
        super().__init__("statewise_policy")
        folder = self.declare_parameter("bundle", "bundle").value
        fallback = self.declare_parameter("fallback", "brake").value
        self.policy, self.monitor = Policy(folder), Monitor.from_bundle(folder, fallback=fallback)
        facts = self.policy.facts
        self.scale, self.offset = (np.array(facts[k]) for k in ("action_scale", "action_offset"))
        self.measured: np.ndarray | None = None
        self.last: float | None = None
        """When the last observation arrived. The stamp of a header, if there is one, is better."""
        self.create_subscription(Float32MultiArray, facts["measured"], self.on_measured, 1)
        self.create_subscription(Float32MultiArray, "observation", self.on_observation, 1)
        self.control = self.create_publisher(Float64MultiArray, "control", 1)
        self.diagnostics = self.create_publisher(DiagnosticArray, "diagnostics", 1)
        self.create_service(Trigger, "reset", self.on_reset)
        self.patience = 3 * facts["control_dt"]
        self.create_timer(self.patience, self.on_watchdog)

    def now(self) -> float:
        return float(self.get_clock().now().nanoseconds * 1e-9)

    def on_measured(self, message: Float32MultiArray) -> None:
        self.measured = np.asarray(message.data)

    def on_observation(self, message: Float32MultiArray) -> None:
        self.last = self.now()
        self.publish(
            self.monitor.act(self.policy, np.asarray(message.data), self.measured, self.last)
        )

    def on_watchdog(self) -> None:
        """Stop if observations stay away. Before the first one nothing is sent."""
        if self.last is not None and self.now() - self.last > self.patience:
            self.publish(self.monitor.check(None, self.measured, None, stamp=self.now()))

    def on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Begin an episode: the running maximum is 0 again, and a stop is released."""
        self.policy.reset()
        self.monitor.reset()
        self.measured = self.last = None
        response.success = True
        return response

    def publish(self, verdict: Verdict) -> None:
        data = (self.offset + self.scale * verdict.action).tolist()
        self.control.publish(Float64MultiArray(data=data))
        reasons = [KeyValue(key=str(i), value=r) for i, r in enumerate(verdict.reasons)]
        status = DiagnosticStatus(
            level=LEVELS[verdict.level],
            name="statewise policy",
            message=verdict.level,
            values=reasons,
        )
        message = DiagnosticArray(status=[status])
        message.header.stamp = self.get_clock().now().to_msg()
        self.diagnostics.publish(message)


def main() -> None:
    rclpy.init()
    node = PolicyNode()
    try:
        rclpy.spin(node)
    finally:
        node.destroy_node()
        rclpy.shutdown()


if __name__ == "__main__":
    main()
