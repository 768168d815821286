"""Work side by side gives what it gives one after the other."""

import pytest
import torch
from torch import Tensor

from statewise.cuda_graphs import minibatches, side_by_side

CPU = torch.device("cpu")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_tasks_share_the_threads_and_give_them_back(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:

        def task() -> Tensor:
            return torch.tensor(torch.get_num_threads())

        shared = max(1, threads // 2)
        assert [int(n) for n in side_by_side(CPU, [task, task])] == [shared, shared]
        assert torch.get_num_threads() == threads
        assert [int(n) for n in side_by_side(CPU, [task])] == [threads]
    finally:
        torch.set_num_threads(before)


def test_a_mistake_in_a_task_is_raised_and_the_threads_given_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError):
        side_by_side(CPU, [lambda: torch.ones(2) @ torch.ones(3)] * 2)
    assert torch.get_num_threads() == before


def test_minibatches_are_the_rows_asked_for() -> None:
    x, y = torch.arange(10.0)[:, None], torch.arange(10) * 2
    rows = torch.tensor([[1, 3], [9, 9]])
    got = [(a.flatten().tolist(), b.tolist()) for a, b in minibatches(rows, x, y)]
    assert got == [([1.0, 3.0], [2, 6]), ([9.0, 9.0], [18, 18])]
