"""The learner that policy-gradient algorithms have in common: a policy, a value where asked, an optimiser."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.algorithm.acting import NetActor
from slm_lab.agent.algorithm.base import AlgorithmSpec, Key, NetPlan, resolve_device
from slm_lab.agent.algorithm.policy import Policy
from slm_lab.agent.algorithm.stretches import whole
from slm_lab.agent.algorithm.valuing import NetValues, chunks
from slm_lab.agent.net import make_net
from slm_lab.agent.net.modes import Modes
from slm_lab.agent.net.optim import Group, Optim
from slm_lab.agent.net.policy_value import PolicyValueNet
from slm_lab.lib.distribution import Argmax, Distribution
from slm_lab.lib.errors import SpecError
from slm_lab.lib.rng import Consumer, seed_of
from slm_lab.types import Array, Batch, Spaces


class ActorCriticLearner:
    """Policy and value nets of one agent with their optimiser; a policy alone where the plan has no critic."""

    def __init__(self, spec: AlgorithmSpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        self.device = resolve_device(plan.actor.gpu)
        self.policy = Policy(spaces, spec.action_pdtype, spec.action_policy)
        if self.policy.dist is Argmax:
            raise SpecError("agent.algorithm.action_pdtype: 'Argmax' has no gradient by which a policy could learn.")
        own_log_std = plan.actor.log_std_init is not None and self.policy.gaussian
        self.notes = self._notes(plan, own_log_std)
        with torch.random.fork_rng():
            torch.manual_seed(seed_of(*key, Consumer.INIT))
            self.net = PolicyValueNet(
                make_net,
                spaces.obs_shape,
                self.policy.out_dims(own_log_std),
                spaces.action_dim if own_log_std else None,
                plan.actor,
                plan.critic,
            ).to(self.device)
        self.training = Modes(self.net).training
        self.optim = Optim(self._groups(plan))
        self.separate = self.net.critic is not None
        self.length = plan.stretch.length if plan.stretch else None  # of the sequences that recurrent nets learn from
        self.values = NetValues(self.net.value)
        self.actor = NetActor(self.policy, self.net.step, self.device, self.net.hidden, spec.explore_var_spec)

    @staticmethod
    def _notes(plan: NetPlan, own_log_std: bool) -> list[str]:
        if plan.actor.log_std_init is not None and not own_log_std:
            return ["agent.net.log_std_init: the action distribution has no deviation; ignored."]
        return []

    def _groups(self, plan: NetPlan) -> list[Group]:
        specs = {"actor": plan.actor, "critic": plan.critic or plan.actor}
        return [
            Group(name, params, specs[name].optim_spec, specs[name].lr_scheduler_spec, specs[name].clip_grad_val)
            for name, params in self.net.groups().items()
        ]

    def dist(self, outputs: list[Tensor]) -> Distribution:
        return self.policy.dist(*outputs)

    def whole(self, flat: Batch, ended: Tensor) -> Batch:
        """A whole rollout in one batch, as its nets learn from it; ended [T, N]."""
        return whole(flat, ended, self.length)

    def judged(self, flat: Batch) -> tuple[Tensor, Array]:
        """log pi of the actions taken [B] and V [B], in one pass without gradient.

        Until the first step the policy is the one that acted.
        """
        with torch.no_grad():
            outputs, values = zip(*map(self.net, chunks(flat.obs)), strict=True)
            parts = [torch.cat(part) for part in zip(*outputs, strict=True)]
            return self.dist(parts).log_prob(flat.action), np.asarray(torch.cat(values).cpu().numpy())

    def steps_for(self, policy: bool, value: bool) -> tuple[str, ...]:
        """Names of the nets that a pass with these losses steps."""
        if not self.separate:
            return ("actor",)
        return tuple(name for name, on in (("actor", policy), ("critic", value)) if on)
