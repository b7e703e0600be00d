"""Several optimisers on one set of parameters: every gradient is applied once, whoever steps and whoever dies."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net.optim import Group, Optim
from slm_lab.agent.net.shared import FileLock, Mode, SharedWeights, share
from slm_lab.experiment.server import warm_up
from slm_lab.lib.process import without_main
from slm_lab.spec.schema import LrSpec, OptimSpec

torch.set_num_threads(1)

MODES = get_args(Mode)
OPTIMISERS: dict[str, dict[str, Any]] = {
    "Adadelta": {},
    "Adagrad": {"lr": 0.1, "initial_accumulator_value": 0.5},
    "Adam": {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1},
    "AdamW": {"lr": 0.01},
    "Adamax": {"lr": 0.01},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "momentum": 0.9, "centered": True},
    "Rprop": {"lr": 0.01},
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "Adafactor": {"lr": 0.1},  # steps single tensors: it must not see one flat vector
    # its rate of the second step is already that of the second when state is created by a step: equal but for 1e-6
    "ASGD": {"lr": 0.01},
}
WIDE = 200_000  # numbers in a parameter: a step takes long enough to be interrupted
STEPS = 150


def two_layers(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def optim_of(net: nn.Module, spec: OptimSpec, lr_spec: LrSpec | None = None) -> Optim:
    """Two groups, one for each layer."""
    layers = [layer for layer in net.children() if isinstance(layer, nn.Linear)]
    return Optim([Group(f"layer {i}", list(layer.parameters()), spec, lr_spec, 5.0) for i, layer in enumerate(layers)])


def pull(net: nn.Module, turn: int) -> dict[str, Tensor]:
    """A loss whose gradient does not depend on the weights, another one each turn."""
    rng = torch.Generator().manual_seed(turn)
    return {"loss": torch.stack([(p * torch.randn(p.shape, generator=rng)).sum() for p in net.parameters()]).sum()}


def numbers(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.touch()
    return path


def shared_by(optim: Optim, mode: Mode, lock: Path, workers: int = 2) -> SharedWeights:
    return share(optim.optimizers, mode, workers, lock)


def started(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process as sessions have it, forked from a server that has imported torch."""
    process: BaseProcess = warm_up().Process(target=target, args=arguments)
    with without_main():
        process.start()
    return process


# in one process


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_two_workers_that_take_turns_are_one_optimiser(name: str, mode: Mode, lock: Path) -> None:
    spec = OptimSpec(name=name, **OPTIMISERS[name])
    plain = two_layers()
    one, nets = optim_of(plain, spec), [two_layers(), two_layers(1)]  # the second starts elsewhere, and moves in
    workers = [optim_of(net, spec) for net in nets]
    weights = shared_by(workers[0], mode, lock)
    for worker in workers:
        worker.join(weights)
    before = numbers(plain)
    for turn in range(8):
        one.step(pull(plain, turn))
        workers[turn % 2].step(pull(nets[turn % 2], turn))
    assert not torch.equal(numbers(plain), before)
    if name == "ASGD":
        torch.testing.assert_close(numbers(nets[1]), numbers(plain), rtol=1e-5, atol=1e-6)
    else:
        assert torch.equal(numbers(nets[1]), numbers(plain))


@pytest.mark.parametrize("name", OPTIMISERS)
def test_sharing_an_optimiser_that_has_stepped_goes_on_where_it_stood(name: str, lock: Path) -> None:
    spec = OptimSpec(name=name, **OPTIMISERS[name])
    plain, first, second = two_layers(), two_layers(), two_layers(1)
    one, before, after = (optim_of(net, spec) for net in (plain, first, second))
    for turn in range(3):
        one.step(pull(plain, turn))
        before.step(pull(first, turn))
    after.join(shared_by(before, "shared", lock))
    for turn in range(3, 6):
        one.step(pull(plain, turn))
        after.step(pull(second, turn))
    assert torch.equal(numbers(second), numbers(plain))


def test_sharing_leaves_the_original_as_it_was(lock: Path) -> None:
    net = two_layers()
    optim, before = optim_of(net, OptimSpec(name="AdamW", lr=0.01)), numbers(net)
    shared_by(optim, "shared", lock)
    assert torch.equal(numbers(net), before)
    assert all(len(optimizer.state) == 0 for optimizer in optim.optimizers.values())


def test_shared_parameters_change_at_once_and_synced_ones_with_the_own_step(lock: Path) -> None:
    spec = OptimSpec(name="SGD", lr=1.0)
    for mode, seen in (("shared", 3.0), ("synced", 4.0)):
        nets = [nn.Sequential(nn.Linear(1, 1, bias=False)) for _ in range(2)]
        nets[0][0].weight.data.fill_(4.0)
        ours, theirs = (optim_of(net, spec) for net in nets)
        weights = shared_by(ours, mode, lock)
        ours.join(weights)
        theirs.join(weights)
        assert numbers(nets[1]).tolist() == [4.0]
        theirs.step({"loss": nets[1][0].weight.sum()})  # 4 - 1
        assert numbers(nets[1]).tolist() == [3.0]
        assert numbers(nets[0]).tolist() == [seen]
        ours.step({"loss": 2 * nets[0][0].weight.sum()})  # 3 - 2: both gradients count
        assert numbers(nets[0]).tolist() == [1.0]


@pytest.mark.parametrize("mode", MODES)
def test_a_step_of_one_group_leaves_the_others_alone(mode: Mode, lock: Path) -> None:
    net = two_layers()
    optim, before = optim_of(net, OptimSpec(name="SGD", lr=1.0)), numbers(net)
    optim.join(shared_by(optim, mode, lock))
    optim.step(pull(net, 0), only=["layer 1"])
    moved = numbers(net) != before
    assert not moved[:16].any()  # 3 * 4 weights and 4 biases of layer 0
    assert moved[16:].all()


def test_a_schedule_that_counts_updates_counts_those_of_all_workers(lock: Path) -> None:
    net = two_layers()
    optim = optim_of(net, OptimSpec(name="SGD", lr=1.0), LrSpec(name="StepLR", step_size=6, gamma=0.5))
    optim.join(shared_by(optim, "shared", lock, workers=3))
    rates = []
    for _ in range(4):
        optim.set_lr(0)
        rates.append(optim.lr)
    assert rates == [1.0, 1.0, 0.5, 0.5]  # three updates each time, halved after six


def test_many_tensors_are_one_piece_of_shared_memory(lock: Path) -> None:
    net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(100)))
    optim = Optim([Group("net", list(net.parameters()), OptimSpec(name="Adafactor", lr=0.1), None, None)])
    weights = shared_by(optim, "shared", lock)
    assert len(weights.places) == 100 * (4 + 3)  # weight: itself, step, rows, columns; bias: itself, step, variance
    started(_fill, weights).join(60)
    assert {float(tensor.max()) for params in weights.tensors().values() for p in params for tensor in p.values()} == {
        7
    }


def _fill(weights: SharedWeights) -> None:
    for params in weights.tensors().values():
        for param in params:
            for tensor in param.values():
                tensor.fill_(7)


# in several processes


def _descend(weights: SharedWeights, gradient: float, ready: Any) -> None:
    """Step STEPS times by the same gradient everywhere."""
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(WIDE, 1, bias=False))
    optim = wide_optim(net)
    optim.join(weights)
    ready.wait(60)
    for _ in range(STEPS):
        optim.step({"loss": gradient * net[0].weight.sum()})


def wide_optim(net: nn.Module) -> Optim:
    return Optim([Group("net", list(net.parameters()), OptimSpec(name="SGD", lr=0.5), None, None)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_apply_exactly_the_gradients_they_computed(workers: int, mode: Mode, lock: Path) -> None:
    net = nn.Sequential(nn.Linear(WIDE, 1, bias=False))
    net[0].weight.data.fill_(1000.0)
    weights = shared_by(wide_optim(net), mode, lock, workers)
    ready = warm_up().Barrier(workers)
    processes = [started(_descend, weights, 1.0 + k, ready) for k in range(workers)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * workers
    # whole and half numbers far below 2^24: float32 adds them exactly, in any order
    expected = 1000.0 - 0.5 * STEPS * sum(1.0 + k for k in range(workers))
    assert weights.tensors()["net"][0][""].unique().tolist() == [expected]


def _hold(lock: Path, held: Any) -> None:
    with FileLock(lock):
        held.set()
        signal.pause()


@pytest.mark.timeout(60)
def test_a_worker_killed_in_its_step_does_not_block_the_others(lock: Path) -> None:
    held = warm_up().Event()
    process = started(_hold, lock, held)
    assert held.wait(60)
    handle = os.open(lock, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    process.kill()
    net = two_layers()
    optim, before = optim_of(net, OptimSpec(name="SGD", lr=1.0)), numbers(net)
    optim.join(shared_by(optim, "shared", lock))
    optim.step(pull(net, 0))
    assert not torch.equal(numbers(net), before)
    process.join(10)


def test_a_lock_keeps_out_until_it_is_left(lock: Path) -> None:
    inside = FileLock(lock)
    handle = os.open(lock, os.O_RDWR)
    with inside, pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
