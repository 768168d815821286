"""A short form of `make attack`, with fixed seeds: kills, faults, mutations, hostile files, fuzzing."""

from pathlib import Path

import pytest
from attacks.calls import attack_calls
from attacks.commands import attack_commands
from attacks.disk import attack_disk
from attacks.harness import Outcome
from attacks.hostile import attack_hostile
from attacks.mutate import attack_files
from attacks.simulator import attack_simulator


def check(outcome: Outcome, tries: int) -> None:
    assert not outcome.failures, "\n".join(outcome.failures[:3])
    assert (outcome.tries, outcome.survived) == (tries, tries)
    assert outcome.identical in (None, tries)


@pytest.mark.parametrize("kind", ["kills", "faults"])
def test_a_run_disturbed_at_any_file_operation_ends_as_if_it_had_not_been(
    tmp_path: Path, kind: str
) -> None:
    check(attack_disk(tmp_path, 7, kind), 7)


def test_a_mutated_file_is_named_and_never_changes_a_result_in_silence(tmp_path: Path) -> None:
    check(attack_files(tmp_path, 8), 8)


def test_nothing_in_a_run_folder_is_executed_followed_or_waited_for(tmp_path: Path) -> None:
    check(attack_hostile(tmp_path, 6), 6)


def test_no_command_line_ends_with_a_traceback(tmp_path: Path) -> None:
    check(attack_commands(tmp_path, 30), 30)


def test_wrong_arguments_are_refused_by_a_message_of_ours(tmp_path: Path) -> None:
    check(attack_calls(tmp_path, 75), 75)


def test_every_simulator_fault_costs_the_ceiling_in_its_own_world() -> None:
    check(attack_simulator(2000), 2000)
