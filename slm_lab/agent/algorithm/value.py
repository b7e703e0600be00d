"""The learner that value-based algorithms have in common: a net of action values, a rule to act by, an optimiser."""

from __future__ import annotations

from typing import Any

import torch

from slm_lab.agent.algorithm.acting import NetActor
from slm_lab.agent.algorithm.base import AlgorithmSpec, Key, resolve_device
from slm_lab.agent.algorithm.policy import Policy
from slm_lab.agent.net import make_net
from slm_lab.agent.net.base import Head, NetSpec
from slm_lab.agent.net.modes import Modes
from slm_lab.agent.net.optim import Group, Optim, make_loss
from slm_lab.lib.distribution import Argmax
from slm_lab.lib.errors import SpecError
from slm_lab.lib.rng import Consumer, seed_of
from slm_lab.types import Spaces


class ValueLearner:
    """Q of every action, [B, n]."""

    def __init__(self, spec: AlgorithmSpec, net: NetSpec, spaces: Spaces, key: Key) -> None:
        self.device = resolve_device(net.gpu)
        self.policy = Policy(spaces, spec.action_pdtype, spec.action_policy)
        with torch.random.fork_rng():
            torch.manual_seed(seed_of(*key, Consumer.INIT))
            self.net = make_net(net, spaces.obs_shape, [Head(spaces.action_dim)], "value", acts=True)
            self.net.to(self.device)
        self.training = Modes(self.net).training
        self.optim = Optim(
            [Group("net", list(self.net.parameters()), net.optim_spec, net.lr_scheduler_spec, net.clip_grad_val)]
        )
        self.row_loss, self.loss = make_loss(net.loss_spec, "none"), make_loss(net.loss_spec)
        self.actor = NetActor(self.policy, self.net.step, self.device, self.net.hidden, spec.explore_var_spec)
        self.notes = list[str]()
        if spec.action_policy == "boltzmann" and self.policy.dist is Argmax:
            self.notes.append(
                "agent.algorithm.action_pdtype: boltzmann over Argmax is greedy at any temperature; meant: Categorical?"
            )


def check_explore_var(spec: Any) -> None:
    """epsilon_greedy without an epsilon would act at random for ever."""
    if spec.action_policy == "epsilon_greedy" and spec.explore_var_spec is None:
        raise SpecError("agent.algorithm.explore_var_spec: missing key (required by action_policy epsilon_greedy).")
