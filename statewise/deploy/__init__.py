"""From a trained policy to a robot: export it, and watch over it."""

from statewise.deploy.runtime import Monitor, Policy, verify_bundle

__all__ = ["Monitor", "Policy", "verify_bundle"]
