"""Exact finite problems, and the bounds of the paper checked on them. Training does not use this."""
