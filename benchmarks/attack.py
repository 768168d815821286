"""The long attack: kills, I/O faults, mutated and hostile files, fuzzed commands and calls, faults.

    python benchmarks/attack.py                      # everything, under 20 minutes on two idle cores
    python benchmarks/attack.py --kills 50 --faults 0   # fewer of some

Prints a table: tries, survived (nothing lost, executed, raised or hung), identical (ended with the result
of an undisturbed run). Each failure is printed below it, and the exit status is then 1.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from attacks.calls import attack_calls
from attacks.commands import attack_commands
from attacks.disk import attack_disk
from attacks.harness import Outcome
from attacks.hostile import attack_hostile
from attacks.mutate import attack_files
from attacks.simulator import attack_simulator

from statewise.settings import cli, number


@dataclass(frozen=True)
class Args:
    kills: int = number(1000, least=0)
    """SIGKILLs, at every file operation and at random ones."""
    faults: int = number(500, least=0)
    """Failing writes, renames and synchronisations."""
    mutated: int = number(2000, least=0)
    """Files with flipped bits, lost lines or values of wrong types."""
    hostile: int = number(200, least=0)
    """Files that try to run code, to be waited for, or to lead elsewhere."""
    commands: int = number(5000, least=0)
    """Command lines of random options and values."""
    calls: int = number(3000, least=0)
    """Calls of public functions with wrong arguments."""
    simulator: int = number(100_000, least=0)
    """Sensors that are not finite."""
    seed: int = number(0, least=0)
    """Seed of everything that is random."""
    jobs: int = number(2, least=1)
    """Parts that run at once."""
    shown: int = number(5, least=0)
    """Failures of each section that are printed."""


def main(args: Args) -> int:
    parts = 2 * args.jobs
    with concurrent.futures.ProcessPoolExecutor(
        args.jobs, multiprocessing.get_context("fork"), max_tasks_per_child=None
    ) as pool:
        sections = ("kills", "faults", "mutated", "hostile", "commands", "calls", "simulator")
        futures = {
            name: [pool.submit(run_part, name, share, args.seed * parts + i)
                   for i, share in enumerate(shares(getattr(args, name), parts)) if share]
            for name in sections
        }  # fmt: skip
        outcomes = {n: [f.result() for f in found] for n, found in futures.items() if found}
    print(f"{'section':<18}{'tries':>8}{'survived':>10}{'identical':>11}{'seconds':>9}")
    failures = []
    for name, found in outcomes.items():
        tries, survived = sum(o.tries for o in found), sum(o.survived for o in found)
        same = [o.identical for o in found if o.identical is not None]
        seconds = sum(o.seconds for o in found)
        print(f"{name:<18}{tries:>8}{survived:>10}{sum(same) if same else '':>11}{seconds:>9.0f}")
        failures += [f"{name}: {text}" for o in found for text in o.failures[: args.shown]]
    print("\n".join(failures))
    return int(bool(failures) or audit() != 0)


def shares(tries: int, parts: int) -> list[int]:
    return [tries // parts + (i < tries % parts) for i in range(parts)]


def run_part(name: str, tries: int, seed: int) -> Outcome:
    """One share of a section, in a folder of its own."""
    torch.set_num_threads(1)
    sections: dict[str, Callable[[Path], Outcome]] = {
        "kills": lambda scratch: attack_disk(scratch, tries, "kills", seed),
        "faults": lambda scratch: attack_disk(scratch, tries, "faults", seed),
        "mutated": lambda scratch: attack_files(scratch, tries, seed),
        "hostile": lambda scratch: attack_hostile(scratch, tries, seed),
        "commands": lambda scratch: attack_commands(scratch, tries, seed),
        "calls": lambda scratch: attack_calls(scratch, tries, seed),
        "simulator": lambda scratch: attack_simulator(tries, seed=seed),
    }
    with tempfile.TemporaryDirectory() as scratch:
        return sections[name](Path(scratch))


def audit() -> int:
    """Look for known holes in the installed packages, where pip-audit is installed and has network."""
    if importlib.util.find_spec("pip_audit") is None:
        print("pip-audit: not installed, left out")
        return 0
    done = subprocess.run([sys.executable, "-m", "pip_audit", "--local", "--skip-editable"], check=False,
                          capture_output=True, text=True)  # fmt: skip
    if "ConnectionError" in done.stderr or "Max retries" in done.stderr:
        print("pip-audit: no network, left out")
        return 0
    print(done.stdout + done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(cli(Args)))
