"""Figures and pages of runs: `curves` draws a picture, `build` makes the report."""
