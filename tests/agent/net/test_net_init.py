from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.net import make_net, net_class
from slm_lab.agent.net.base import Head, Net, activation
from slm_lab.agent.net.mlp import MLPNetSpec
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse


def net_spec(**keys: object) -> MLPNetSpec:
    return parse(MLPNetSpec, {"type": "MLPNet", "hid_layers": [64, 64], **keys}, "agent.net", [])


def build(heads: list[Head], **keys: object) -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_net(net_spec(**keys), (8,), heads).net


def linears(net: nn.Module) -> list[nn.Linear]:
    return [part for part in net.modules() if isinstance(part, nn.Linear)]


def assert_orthogonal(weight: Tensor, gain: float) -> None:
    """Rows or columns, whichever are fewer, are at right angles and of length `gain`."""
    square = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
    torch.testing.assert_close(square, gain**2 * torch.eye(len(square)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "gain"),
    [("tanh", 5 / 3), ("relu", math.sqrt(2)), ("selu", 0.75), ("silu", math.sqrt(2)), ("GELU", 2**0.5)],
)
def test_orthogonal_weights_have_the_gain_of_the_activation_and_biases_are_zero(name: str, gain: float) -> None:
    net = build([Head(4)], init_fn="orthogonal_", hid_layers_activation=name)
    for linear in linears(net):
        assert_orthogonal(linear.weight.detach(), gain)
        assert (linear.bias == 0).all()


@pytest.mark.parametrize("name", ["xavier_uniform_", "kaiming_normal_", "normal_", "uniform_", "trunc_normal_"])
def test_other_functions_of_torch_apply_by_name(name: str) -> None:
    plain, filled = build([Head(4)]), build([Head(4)], init_fn=name)
    for before, after in zip(linears(plain), linears(filled), strict=True):
        assert not torch.equal(before.weight, after.weight)
        assert (after.bias == 0).all()


def test_without_a_function_torchs_own_initialisation_stays() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = nn.Linear(8, 64)
    first = linears(build([Head(4)]))[0]
    assert torch.equal(first.weight, expected.weight)
    assert torch.equal(first.bias, expected.bias)


def test_a_head_with_a_gain_is_orthogonal_whatever_the_rest_is() -> None:
    net = build([Head(4, gain=0.01), Head(1, gain=1.0)], init_fn="xavier_uniform_")
    policy, value = linears(net)[-2:]
    assert_orthogonal(policy.weight.detach(), 0.01)
    assert_orthogonal(value.weight.detach(), 1.0)
    assert (policy.bias == 0).all()
    assert (value.bias == 0).all()


def test_logits_of_a_small_head_are_nearly_equal_at_the_start() -> None:
    net = build([Head(4, gain=0.01)], init_fn="orthogonal_", hid_layers_activation="tanh")
    obs = torch.randn(1000, 8, generator=torch.Generator().manual_seed(1))
    assert net(obs)[0].std().item() < 0.05


def test_each_head_has_its_own_output_activation() -> None:
    net = build([Head(3), Head(2)], out_layer_activation=["tanh", None], init_fn="normal_")
    bounded, free = net(100 * torch.ones(1, 8))
    assert bounded.abs().max() <= 1
    assert free.abs().max() > 1


def test_one_output_activation_holds_for_all_heads() -> None:
    for out in build([Head(3), Head(2)], out_layer_activation="sigmoid", init_fn="normal_")(100 * torch.ones(1, 8)):
        assert ((out >= 0) & (out <= 1)).all()


def test_activations_are_found_in_any_case() -> None:
    assert isinstance(activation("LeakyReLU"), nn.LeakyReLU)
    assert isinstance(activation("leaky_relu"), nn.LeakyReLU)
    assert isinstance(activation("tanh"), nn.Tanh)


@pytest.mark.parametrize(
    ("key", "value", "near"),
    [
        ("hid_layers_activation", "rleu", "relu"),
        ("out_layer_activation", "tahn", "tanh"),
        ("init_fn", "ortogonal_", "orthogonal_"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(key: str, value: str, near: str) -> None:
    with pytest.raises(SpecError, match=rf"agent\.net\.{key}: .*Did you mean '{near}'"):
        net_spec(**{key: value})


def test_an_unknown_net_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        SpecError, match=r"agent\.net\.type: unknown net 'MLPnett'. Did you mean 'MLPNet'\? Known: .*MLP"
    ):
        net_class("MLPnett", "agent.net.type")
