from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from slm_lab.agent.net import make_net
from slm_lab.agent.net.base import Head
from slm_lab.agent.net.mlp import MLPNetSpec
from slm_lab.agent.net.modes import Modes


class Own(nn.Module):
    """Somebody's layer, of which nothing is known."""

    def forward(self, x: Tensor) -> Tensor:
        return x


LAYERS: dict[str, nn.Module] = {
    "batch norm": nn.BatchNorm1d(2),
    "dropout": nn.Dropout(0.5),
    "recurrent": nn.LSTM(2, 2, num_layers=2, dropout=0.5),
    "spectral norm": spectral_norm(nn.Linear(2, 2)),
    "own": Own(),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_net_that_cares_is_in_training_mode_for_the_time_asked(name: str) -> None:
    net = nn.Sequential(nn.Linear(2, 2), LAYERS[name]).train()
    modes = Modes(net)
    assert not any(module.training for module in net.modules())
    with modes.training():
        assert all(module.training for module in net.modules())
    assert not any(module.training for module in net.modules())


def test_the_mode_is_left_when_something_goes_wrong() -> None:
    modes = Modes(nn.Sequential(nn.BatchNorm1d(2)))
    with pytest.raises(ZeroDivisionError), modes.training():
        raise ZeroDivisionError
    assert not modes.net.training


@pytest.mark.parametrize(
    ("keys", "matter"),
    [({}, False), ({"layer_norm": True}, False), ({"batch_norm": True}, True), ({"batch_renorm": True}, True)],
)
def test_only_nets_with_layers_that_care_are_switched(keys: dict[str, bool], matter: bool) -> None:
    spec = MLPNetSpec(type="MLPNet", hid_layers=[4], **keys)
    modes = Modes(make_net(spec, (3,), [Head(2)]))
    assert modes.matter is matter
    with modes.training():
        assert modes.net.training is matter


def test_batch_statistics_move_only_in_training_mode() -> None:
    modes = Modes(nn.BatchNorm1d(2))
    mean = modes.net.get_buffer("running_mean")
    modes.net(torch.ones(4, 2))
    assert mean.tolist() == [0, 0]
    with modes.training():
        modes.net(torch.ones(4, 2))
    assert mean.tolist() == [pytest.approx(0.1), pytest.approx(0.1)]
