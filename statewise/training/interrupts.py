"""Ctrl-C and SIGTERM as requests to stop, not as exceptions in the middle of something."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("statewise")


@contextmanager
def count_interrupts(notice: str = "", most: int = 0) -> Iterator[Callable[[], int]]:
    """Count Ctrl-C and SIGTERM instead of their usual effect; gives a function that tells the count.

    notice: logged at the first. most: as many are taken; the next raises KeyboardInterrupt (0: all).
    """
    count = 0

    def handler(signum: int, frame: object) -> None:
        nonlocal count
        count += 1
        if most and count > most:
            raise KeyboardInterrupt
        if notice and count == 1:
            log.warning(notice)

    try:
        before = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: nobody presses Ctrl-C there
        yield lambda: 0
        return
    try:
        yield lambda: count
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
