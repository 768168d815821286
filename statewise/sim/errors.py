"""Errors of physics that say what to do."""

from __future__ import annotations


class RobotFileError(ValueError):
    """A robot's MJCF file lacks something the environment needs."""
