"""SARSA: action values of the policy that acts, learnt from rollouts (Rummery and Niranjan 1994)."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from slm_lab.agent.algorithm.base import TARGET_KEYS, Algorithm, AlgorithmSpec, Key, NetPlan, Workload
from slm_lab.agent.algorithm.joined import joined
from slm_lab.agent.algorithm.losses import taken, td_target
from slm_lab.agent.algorithm.stretches import whole
from slm_lab.agent.algorithm.value import ValueLearner, check_explore_var
from slm_lab.agent.net.gradient_step import GradientStep, Losses
from slm_lab.agent.net.obs_net import mask_in
from slm_lab.lib.noise import Noise
from slm_lab.spec.parse import Float, Int
from slm_lab.types import Batch, Cadence, Lessons, Metrics, Spaces, State


class SARSASpec(AlgorithmSpec):
    """One step a rollout towards r + gamma Q(s', a'), a' the action really taken next."""

    gamma: Float = Field(ge=0, le=1, description="discount")
    training_frequency: Int = Field(ge=1, description="vector steps of a batch; episodes with OnPolicyReplay")


class SARSA(Algorithm):
    """The last vector step of a rollout waits for the next one, which knows what was done after it."""

    Spec = SARSASpec
    actions = ("discrete",)
    unused_net_keys = TARGET_KEYS
    logs = ("explore_var",)

    def __init__(self, spec: SARSASpec, plan: NetPlan, spaces: Spaces, key: Key) -> None:
        super().__init__(key)
        self.spec = spec
        self.learner = ValueLearner(spec, plan.actor, spaces, key)
        self.actor, self.optim, self.notes = self.learner.actor, self.learner.optim, self.learner.notes
        self.nets = nn.ModuleDict({"net": self.learner.net})
        self.step = GradientStep("sarsa", self.loss, self.learner.optim)
        self.programs = (self.step, self.actor)
        self.length = plan.stretch.length if plan.stretch else None  # of the sequences that a recurrent net learns from
        self.held: Batch | None = None  # the last row of the rollout before, [1, N]

    @classmethod
    def settle(cls, spec: Any, num_envs: int, unit: str, batch_size: int | None) -> Any:
        check_explore_var(spec)
        return spec

    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        return Cadence(self.spec.training_frequency, unit)

    def workload(self, num_envs: int, batch_size: int) -> Workload:
        rows = self.spec.training_frequency * num_envs
        return Workload(1 / rows, rows)

    def update(self, memory: Lessons, frame: int) -> Metrics:
        spec, learner = self.spec, self.learner
        rollout = memory.sample().to(learner.device)
        if self.held is not None:
            rollout = joined(self.held, rollout)
        self.held = rollout.rows(len(rollout) - 1, len(rollout)).map(torch.clone)
        metrics = {"explore_var": spec.explore_var_spec(frame) if spec.explore_var_spec else math.nan}
        if len(rollout) == 1:  # the very first row: nothing follows it yet
            return {"loss": math.nan, "opt_steps": 0, **metrics}
        learner.optim.set_lr(frame)
        before = rollout.rows(0, len(rollout) - 1)
        rows = before.flat().with_extra(target=self.targets(rollout, frame).flatten())
        batch = whole(rows, before.ended, self.length)
        self.step(batch, self.rng.noise)
        return {"loss": self.step.losses()[0], "opt_steps": 1, **metrics}

    def loss(self, batch: Batch, noise: Noise) -> Losses:
        """How far the values of the actions that were taken are from their targets."""
        with self.learner.training():
            value = taken(self.learner.net(batch.obs)[0], batch.action)
        return {"value": self.learner.loss(value, batch.extra["target"])}, {}

    @torch.no_grad()
    def targets(self, rollout: Batch, frame: int) -> Tensor:
        """r + gamma Q(s', a') [T - 1, N] for all rows but the last of a rollout [T, N].

        a' is the action of the row after. Where a time limit cut the episode nothing was done in s': there it is what
        the policy would do.
        """
        before = rollout.rows(0, len(rollout) - 1)
        flat = before.flat()
        q = self.learner.net(flat.next_obs)[0]
        follow = rollout.action[1:].flatten()
        cut = flat.truncated & ~flat.terminated
        if cut.any():
            explore_var = self.spec.explore_var_spec(frame) if self.spec.explore_var_spec else 1.0
            mask = mask_in(flat.next_obs)
            allowed = None if mask is None else mask.cpu()
            would = self.learner.policy.explore([q.cpu()], explore_var, self.rng.noise, allowed).to(q.device)
            follow = torch.where(cut, would, follow)
        target = td_target(flat.reward, flat.terminated, taken(q, follow), self.spec.gamma)
        return target.view_as(before.reward)

    def state_dict(self) -> State:
        held = {} if self.held is None else asdict(self.held)
        return {**super().state_dict(), "held": held}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.held = Batch(**state["held"]).to(self.learner.device) if state["held"] else None
