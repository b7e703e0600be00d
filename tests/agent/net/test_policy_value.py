from __future__ import annotations

import pytest
import torch
from torch import nn

from slm_lab.agent.net import make_net
from slm_lab.agent.net.mlp import MLPNetSpec
from slm_lab.agent.net.policy_value import PolicyValueNet
from slm_lab.spec.parse import parse


def net_spec(**keys: object) -> MLPNetSpec:
    return parse(MLPNetSpec, {"type": "MLPNet", "hid_layers": [16], **keys}, "agent.net", [])


def build(
    policy_dims: list[int], log_std_dim: int | None = None, critic: bool = True, **keys: object
) -> PolicyValueNet:
    spec = net_spec(**keys)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return PolicyValueNet(make_net, (3,), policy_dims, log_std_dim, spec, spec if critic else None)


OBS = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shared", [False, True])
def test_both_outputs_agree_with_each_alone(shared: bool) -> None:
    net = build([2, 2], shared=shared)
    policy, value = net(OBS)
    assert [out.shape for out in policy] == [(7, 2), (7, 2)]
    assert value.shape == (7,)
    assert torch.equal(value, net.value(OBS))
    assert all(torch.equal(one, other) for one, other in zip(policy, net.policy(OBS), strict=True))


def test_separate_nets_share_nothing_and_are_two_groups() -> None:
    net = build([2])
    groups = net.groups()
    assert list(groups) == ["actor", "critic"]
    assert {id(p) for p in groups["actor"]}.isdisjoint(id(p) for p in groups["critic"])
    assert sum(len(group) for group in groups.values()) == len(list(net.parameters()))


def test_a_shared_net_is_one_group_and_its_value_moves_the_body() -> None:
    net = build([2], shared=True)
    assert list(net.groups()) == ["actor"]
    body = next(net.actor.net.body.parameters())
    assert torch.autograd.grad(net.value(OBS).sum(), body)[0].abs().sum() > 0


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_a_deviation_of_its_own_is_one_parameter_that_no_state_changes(dim: int, shared: bool) -> None:
    net = build([dim], log_std_dim=dim, shared=shared, log_std_init=-0.5)
    assert isinstance(net.log_std, nn.Parameter)
    assert net.log_std.tolist() == [-0.5] * dim
    mean, log_std = net.policy(OBS)
    assert mean.shape == log_std.shape == (7, dim)
    assert (log_std == -0.5).all()
    assert any(p is net.log_std for p in net.groups()["actor"])
    assert net(OBS)[1].shape == (7,)


def test_only_the_mean_gets_the_small_gain_of_the_policy_and_the_value_gets_its_own() -> None:
    net = build([2, 2], actor_init_std=0.01, critic_init_std=1.0)
    assert net.critic is not None
    mean, log_std = (head.weight.detach() for head in net.actor.net.heads)
    value = net.critic.net.heads[0].weight.detach()
    torch.testing.assert_close(mean @ mean.T, 1e-4 * torch.eye(2))
    assert log_std.norm() > 0.1
    torch.testing.assert_close(value @ value.T, torch.eye(1))


def test_heads_of_a_shared_net_have_their_own_gains() -> None:
    net = build([2], shared=True, actor_init_std=0.01, critic_init_std=1.0)
    policy, value = (head.weight.detach() for head in net.actor.net.heads)
    torch.testing.assert_close(policy @ policy.T, 1e-4 * torch.eye(2))
    torch.testing.assert_close(value @ value.T, torch.eye(1))


def test_without_a_critic_there_is_a_policy_alone() -> None:
    net = build([2], critic=False, shared=True)
    assert list(net.groups()) == ["actor"]
    assert [out.shape for out in net.policy(OBS)] == [(7, 2)]
    assert len(net.actor.net.heads) == 1
