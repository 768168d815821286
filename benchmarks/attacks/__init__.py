"""Attacks on files, inputs and faults, for `benchmarks/attack.py` and, in a short form, the tests."""
