"""Collect, update, log, save, evaluate."""
