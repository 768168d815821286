"""From a trained policy to a robot: certificates, exports, monitors, replays."""

from statewise.deploy.runtime import Monitor, Policy, verify_bundle

__all__ = ["Monitor", "Policy", "verify_bundle"]
