"""Robots, suites and the batched environment."""
