from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from slm_lab.agent.net.base import NetSpec
from slm_lab.agent.net.target import Target, polyak_note


def linear(value: float) -> nn.Linear:
    layer = nn.Linear(1, 1)
    nn.init.constant_(layer.weight, value)
    nn.init.constant_(layer.bias, -value)
    return layer


def target_of(source: Any, **keys: Any) -> Target[Any]:
    return Target(source, NetSpec(type="any", **keys))


def move(layer: nn.Linear, value: float) -> None:
    nn.init.constant_(layer.weight, value)
    nn.init.constant_(layer.bias, -value)


def numbers(layer: Any) -> list[float]:
    return [layer.weight.item(), layer.bias.item()]


def test_a_target_starts_as_a_copy_of_its_own() -> None:
    source = linear(2.0)
    target = target_of(source)
    assert numbers(target.net) == [2, -2]
    move(source, 3.0)
    assert numbers(target.net) == [2, -2]


def test_polyak_blends_by_the_weight_of_the_new_parameters() -> None:
    source = linear(0.0)
    target = target_of(source, update_type="polyak", polyak_coef=0.25)
    move(source, 8.0)
    target.stepped()
    assert numbers(target.net) == [2, -2]  # .75 * 0 + .25 * 8
    target.stepped()
    assert numbers(target.net) == [3.5, -3.5]  # .75 * 2 + .25 * 8
    target.passed(1_000_000)
    assert numbers(target.net) == [3.5, -3.5]  # frames do not matter


def test_gradient_steps_do_not_replace() -> None:
    source = linear(0.0)
    target = target_of(source, update_type="replace", update_frequency=10)
    move(source, 8.0)
    target.stepped()
    assert numbers(target.net) == [0, 0]


@pytest.mark.parametrize(
    ("frames", "frequency", "replaced"),
    [
        (range(4, 41, 4), 10, [12, 20, 32, 40]),  # no multiple of 4 envs: the first frame at or past 10, 20, 30, 40
        (range(4, 41, 4), 8, [8, 16, 24, 32, 40]),
        (range(4, 13, 4), 1, [4, 8, 12]),
        (range(100, 141, 20), 50, [100]),  # learning starts late: once, not for each multiple that has gone by
        (range(1, 12), 4.5, [5, 9]),
    ],
)
def test_replacing_goes_by_frames(frames: range, frequency: float, replaced: list[int]) -> None:
    source = linear(0.0)
    target = target_of(source, update_type="replace", update_frequency=frequency)
    seen = list[int]()
    for frame in frames:
        move(source, float(frame))
        target.passed(frame)
        if numbers(target.net) == [frame, -frame]:
            seen.append(frame)
    assert seen == replaced


@pytest.mark.parametrize("keys", [{"update_type": "polyak", "polyak_coef": 0.5}, {"update_type": "replace"}])
def test_buffers_are_copied_whole(keys: dict[str, Any]) -> None:
    source = nn.BatchNorm1d(1)
    target = target_of(source, **keys)
    source(torch.tensor([[1.0], [3.0]]))
    assert source.running_mean is not None
    assert source.running_mean.item() == pytest.approx(0.2)
    target.stepped()
    target.passed(1)
    for name, buffer in source.named_buffers():
        assert torch.equal(target.net.get_buffer(name), buffer)


def test_a_target_is_in_evaluation_mode_and_has_no_gradient() -> None:
    target = target_of(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)).train())
    assert not any(module.training for module in target.net.modules())
    assert not any(param.requires_grad for param in target.parameters())
    assert not target.net(torch.ones(2, 1)).requires_grad


def test_a_target_follows_parameters_that_became_views_of_one_vector() -> None:
    source = linear(1.0)
    target = target_of(source, update_type="polyak", polyak_coef=1.0)
    flat = torch.tensor([5.0, 6.0])
    source.weight.data, source.bias.data = flat[:1].view(1, 1), flat[1:]
    flat += 1
    target.stepped()
    assert numbers(target.net) == [6, 7]


def test_a_target_brought_back_is_not_replaced_again_too_early() -> None:
    source, keys = linear(0.0), {"update_type": "replace", "update_frequency": 10}
    first, second = target_of(source, **keys), target_of(source, **keys)
    first.passed(24)
    second.load_state_dict(first.state_dict())
    move(source, 1.0)
    second.passed(28)
    assert numbers(second.net) == [0, 0]
    second.passed(32)
    assert numbers(second.net) == [1, -1]


@pytest.mark.parametrize(("update", "coef", "notes"), [("polyak", 0.995, 1), ("polyak", 0.005, 0), ("replace", 0.9, 0)])
def test_a_coefficient_of_the_old_meaning_is_remarked_upon(update: Any, coef: float, notes: int) -> None:
    said = polyak_note(NetSpec(type="any", update_type=update, polyak_coef=coef))
    assert len(said) == notes
    assert all("agent.net.polyak_coef: 0.995" in note and "0.005 here" in note for note in said)
