from __future__ import annotations

import pytest
import torch
from torch import nn

from slm_lab.agent.net import make_net, net_class
from slm_lab.agent.net.base import Head
from slm_lab.agent.net.batch_renorm import BatchRenorm1d
from slm_lab.agent.net.dueling import DuelingMLPNet, DuelingMLPNetSpec, action_values
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse
from slm_lab.types import Shape


def build(heads: list[Head] | None = None, in_shape: Shape = (3,), **keys: object) -> DuelingMLPNet:
    data = {"type": "DuelingMLPNet", "hid_layers": [8, 6], **keys}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make_net(parse(DuelingMLPNetSpec, data, "agent.net", []), in_shape, heads or [Head(4)]).net
    assert isinstance(net, DuelingMLPNet)
    return net


def linear(net: DuelingMLPNet, index: int) -> nn.Linear:
    head = net.heads[index]
    assert isinstance(head, nn.Linear)
    return head


def test_action_values_are_the_state_value_plus_centred_advantages() -> None:
    value, advantage = torch.tensor([[10.0], [0.0]]), torch.tensor([[1.0, 2.0, 6.0], [-1.0, -1.0, -4.0]])
    # the advantages' means are 3 and -2
    assert action_values(value, advantage).tolist() == [[8.0, 9.0, 13.0], [1.0, 1.0, -2.0]]


def test_a_dueling_net_is_a_body_a_value_head_and_an_advantage_head() -> None:
    net = build(hid_layers_activation="tanh")
    assert isinstance(net.body, nn.Sequential)
    assert [type(layer) for layer in net.body] == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh]
    assert [tuple(head.weight.shape) for head in (linear(net, 0), linear(net, 1))] == [(1, 6), (4, 6)]


def test_it_gives_one_output_whose_mean_over_actions_is_the_value_head() -> None:
    net = build()
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    (q,) = net(x)
    features = net.body(x)
    value, advantage = linear(net, 0)(features), linear(net, 1)(features)
    assert q.shape == (7, 4)
    torch.testing.assert_close(q.mean(1, keepdim=True), value)
    torch.testing.assert_close(q - q[:, :1], advantage - advantage[:, :1])


def test_both_heads_learn() -> None:
    net = build()
    q = net(torch.ones(2, 3))[0][:, 1].sum()
    assert all(gradient.abs().sum() > 0 for gradient in torch.autograd.grad(q, list(net.heads.parameters())))


def test_an_init_fn_applies_to_both_heads() -> None:
    net = build(init_fn="orthogonal_", hid_layers_activation="relu")
    for head in (linear(net, 0), linear(net, 1)):
        square = head.weight @ head.weight.T  # rows at right angles, of relu's gain sqrt 2
        torch.testing.assert_close(square.detach(), 2 * torch.eye(len(square)), rtol=1e-4, atol=1e-4)
        assert (head.bias == 0).all()


def test_the_gain_of_the_head_asked_for_is_that_of_both() -> None:
    net = build([Head(4, gain=0.1)])
    for head in (linear(net, 0), linear(net, 1)):
        square = head.weight @ head.weight.T
        torch.testing.assert_close(square.detach(), 0.01 * torch.eye(len(square)), rtol=1e-4, atol=1e-6)
        assert (head.bias == 0).all()


def test_the_keys_of_an_mlp_hold_here_too() -> None:
    net = build(in_shape=(2, 3), batch_renorm=True)
    assert isinstance(net.body, nn.Sequential)
    assert [type(layer) for layer in net.body] == [BatchRenorm1d, *[nn.Linear, nn.ReLU, BatchRenorm1d] * 2]
    assert net(torch.zeros(5, 2, 3, dtype=torch.uint8))[0].shape == (5, 4)


def test_more_outputs_than_action_values_are_refused() -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.type: DuelingMLPNet .* 2 were asked for\. .* not for policies"):
        build([Head(4), Head(1)])


def test_an_output_activation_is_refused() -> None:
    with pytest.raises(SpecError, match=r"agent\.net\.out_layer_activation: got 'tanh' \(str\); allowed: null, "):
        build(out_layer_activation="tanh")
    build(out_layer_activation=None)


def test_specs_find_it_by_name() -> None:
    assert net_class("DuelingMLPNet", "agent.net.type") is DuelingMLPNet
