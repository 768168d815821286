"""From a trained policy to a robot: certificates, exports, monitors, replays."""
