"""The parts of maximum-entropy learning that SoftActorCritic and CrossQ share: policy, twin critics, temperature.

One view serves discrete and continuous actions alike: a Choice is what a policy would do in each state, and it can tell
the value it expects of it and how undecided it is. V(s) = E[Q] + alpha * H in both cases.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from slm_lab.agent.algorithm.base import AlgorithmSpec, NetPlan
from slm_lab.agent.algorithm.losses import taken
from slm_lab.agent.algorithm.policy import Policy
from slm_lab.agent.net import make_net
from slm_lab.agent.net.base import Head, NetSpec
from slm_lab.agent.net.optim import Group
from slm_lab.lib.distribution import Categorical, NormalTanh
from slm_lab.lib.errors import SpecError
from slm_lab.lib.noise import Noise
from slm_lab.spec.parse import Float, Int, Model
from slm_lab.spec.schema import OptimSpec
from slm_lab.types import Spaces

EMA = 0.99  # of the entropy that entropy_penalty_coef holds the policy to


class EntropyAnneal(Model):
    """The target entropy of discrete actions, as a share of the most there can be, ln n."""

    start_ratio: Float = Field(0.6, ge=0, le=1, description="share at the start")
    end_ratio: Float | None = Field(None, ge=0, le=1, description="share at the end; unset: start_ratio")
    frames: Int = Field(0, ge=0, description="frames from start to end")

    def __call__(self, frame: int) -> float:
        if self.end_ratio is None or not self.frames:
            return self.start_ratio if self.end_ratio is None else self.end_ratio
        return self.start_ratio + min(1.0, frame / self.frames) * (self.end_ratio - self.start_ratio)


class SoftSpec(AlgorithmSpec):
    """Keys of maximum-entropy algorithms."""

    gamma: Float = Field(ge=0, le=1, description="discount")
    training_frequency: Int = Field(
        ge=1, description="frames between updates; one a vector step at most, so less than num_envs means every step"
    )
    training_iter: Int | None = Field(None, ge=1, description="gradient steps of an update; unset: num_envs")
    training_start_step: Int | None = Field(
        None, ge=0, description="frames of random actions before the first update; unset: 1000, or batch_size if more"
    )
    policy_delay: Int = Field(1, ge=1, description="critic steps for one step of policy and temperature")
    target_entropy: Literal["auto"] | Float = Field(
        "auto", description="auto: -dims for continuous actions, a share of ln n for discrete ones"
    )
    entropy_anneal: EntropyAnneal = Field(
        EntropyAnneal(), description="discrete, auto: the share of ln n over frames, {start_ratio, end_ratio, frames}"
    )
    log_alpha_min: Float = Field(-5.0, description="lowest log temperature")
    log_alpha_max: Float = Field(2.0, description="highest log temperature")
    alpha_lr: Float | None = Field(None, gt=0, description="learning rate of the temperature; unset: the actor's")
    fixed_alpha: Float | None = Field(None, ge=0, description="a temperature that is not learnt")
    alpha_anneal_frames: Int = Field(0, ge=0, description="with fixed_alpha: frames over which it falls to 0")
    entropy_penalty_coef: Float = Field(
        0.0, ge=0, description="discrete: holds the policy's entropy near its running mean"
    )
    symlog: bool = Field(False, description="compress values and targets by sign(x) ln(1 + |x|) in the critic loss")
    spectral_norm: bool = Field(False, description="spectral norm on the last hidden layer of the critics")


class Choice(NamedTuple):
    """What a policy would do: one sampled action for each state, or the probabilities of all."""

    action: Tensor | None  # [B, A] in (-1, 1), continuous only
    probs: Tensor | None  # [B, n], discrete only
    log_prob: Tensor  # [B] of the sampled action, or [B, n]

    def expect(self, q: Tensor) -> Tensor:
        """The value of the choice [B], from that of the sampled action [B] or of all actions [B, n]."""
        return q if self.probs is None else (self.probs * q).sum(-1)

    @property
    def entropy(self) -> Tensor:
        """How undecided the policy is, [B]: exact where discrete, by the sample where continuous."""
        return -self.expect(self.log_prob)


class SoftPolicy(nn.Module):
    """The net that decides, and what its outputs mean."""

    def __init__(self, spec: SoftSpec, net: NetSpec, spaces: Spaces) -> None:
        super().__init__()
        self.discrete = spaces.action_kind == "discrete"
        self.policy = Policy(spaces, self._pdtype(spec.action_pdtype), spec.action_policy)
        if self.policy.dist is not (Categorical if self.discrete else NormalTanh):
            allowed = "Categorical or GumbelSoftmax" if self.discrete else "Normal or NormalTanh"
            reason = f"allowed: default, {allowed}, which are the same here"
            raise SpecError(f"agent.algorithm.action_pdtype: got {spec.action_pdtype!r}; {reason}.")
        heads = [Head(dim, net.actor_init_std if i == 0 else None) for i, dim in enumerate(self.policy.out_dims(False))]
        self.net = make_net(net, spaces.obs_shape, heads, "actor", acts=True)

    def _pdtype(self, name: str | None) -> str | None:
        """Continuous actions are always squashed. A relaxed sample would only be a noisy form of the exact mean."""
        same = {"Normal": "NormalTanh"} if not self.discrete else {"GumbelSoftmax": "Categorical"}
        default = "Categorical" if self.discrete else "NormalTanh"
        return default if name in (None, "default") else same.get(name, name)

    def forward(self, obs: Any, noise: Noise) -> Choice:
        outputs = self.net(obs)
        if self.discrete:
            log_probs = Categorical(outputs[0]).log_probs
            return Choice(None, log_probs.exp(), log_probs)
        dist = NormalTanh(*outputs)
        raw = dist.sample(noise)
        return Choice(raw.tanh(), None, dist.log_prob(raw))


class TwinCritic(nn.Module):
    """Two nets of action values: of state and action together where actions are continuous, else of every action."""

    def __init__(self, spec: SoftSpec, net: NetSpec, spaces: Spaces) -> None:
        super().__init__()
        self.discrete = spaces.action_kind == "discrete"
        out, side = (spaces.action_dim, 0) if self.discrete else (1, spaces.action_dim)
        self.q1 = make_net(net, spaces.obs_shape, [Head(out, net.critic_init_std)], "q1", side)
        self.q2 = make_net(net, spaces.obs_shape, [Head(out, net.critic_init_std)], "q2", side)
        if spec.spectral_norm:
            bound_slope(self.q1)
            bound_slope(self.q2)

    def forward(self, obs: Any, action: Tensor | None) -> tuple[Tensor, Tensor]:
        """Values of the given actions [B] where continuous, of all actions [B, n] where discrete."""
        if self.discrete:
            return self.q1(obs)[0], self.q2(obs)[0]
        return self.q1(obs, action)[0].squeeze(-1), self.q2(obs, action)[0].squeeze(-1)

    @property
    def hidden(self) -> dict[str, int]:
        """Sizes of what the nets remember, by entry of the observation."""
        return self.q1.hidden | self.q2.hidden

    def remember(self, obs: Any) -> dict[str, Tensor]:
        """What the nets remember after these observations, whatever is done then."""
        return self.q1.step(obs)[1] | self.q2.step(obs)[1]

    def of(self, q: Tensor, action: Tensor) -> Tensor:
        """Values [B] of stored actions out of what `forward` gave."""
        return taken(q, action) if self.discrete else q

    def agreed(self, q1: Tensor, q2: Tensor) -> Tensor:
        """One value of two: the lower where actions are continuous, the mean where discrete."""
        return 0.5 * (q1 + q2) if self.discrete else torch.min(q1, q2)


def decide(policy: SoftPolicy, critics: TwinCritic, obs: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
    """What a policy's distribution is made of, and what its net and the critics remember after these observations."""
    outputs, hidden = policy.net.step(obs)
    return outputs, hidden | critics.remember(obs) if critics.hidden else hidden


def bound_slope(net: nn.Module) -> None:
    """Spectral norm on the second-to-last linear layer, which is the last hidden one."""
    layers = [module for module in net.modules() if isinstance(module, nn.Linear)]
    if len(layers) < 2:
        raise SpecError("agent.algorithm.spectral_norm: the critics have no hidden layer to bound.")
    spectral_norm(layers[-2])


class Temperature(nn.Module):
    """alpha, the worth of entropy: learnt so that entropy meets its target, or given."""

    def __init__(self, spec: SoftSpec, spaces: Spaces) -> None:
        super().__init__()
        self.spec, self.spaces = spec, spaces
        self.log_alpha = nn.Parameter(torch.zeros(()).clamp(spec.log_alpha_min, spec.log_alpha_max))
        self.register_buffer("mean_entropy", torch.tensor(-1.0))  # below 0: none yet
        self.mean_entropy: Tensor

    @property
    def learnt(self) -> bool:
        return self.spec.fixed_alpha is None

    def given(self, frame: int) -> float:
        """The temperature of this frame where it is not learnt."""
        frames = self.spec.alpha_anneal_frames
        return (self.spec.fixed_alpha or 0.0) * (max(0.0, 1 - frame / frames) if frames else 1.0)

    def alpha(self, given: float) -> float | Tensor:
        """The temperature, without gradient; what is `given` where it is not learnt."""
        return self.log_alpha.detach().exp() if self.learnt else given

    def target(self, share: float, mask: Tensor | None = None) -> float | Tensor:
        """The entropy that alpha is moved to bring about.

        Discrete and `auto`: a share of the most there can be, by the actions that `mask` [B, n] allows.
        """
        if self.spec.target_entropy != "auto":
            return float(self.spec.target_entropy)
        if self.spaces.action_kind == "continuous":
            return -float(self.spaces.action_dim)
        return share * (math.log(self.spaces.action_dim) if mask is None else mask.sum(-1).log().mean())

    def loss(self, entropy: Tensor, share: float, mask: Tensor | None = None) -> Tensor:
        """alpha (H - target): more entropy than wanted lowers alpha, less raises it."""
        return self.log_alpha.exp() * (entropy.detach().mean() - self.target(share, mask))

    def penalty(self, entropy: Tensor) -> Tensor:
        """Half the square of how far the entropy is from its running mean."""
        now, mean = entropy.detach().mean(), self.mean_entropy
        mean.copy_(torch.where(mean >= 0, mean.lerp(now, 1 - EMA), now))
        return 0.5 * (self.mean_entropy - entropy.mean()) ** 2


def soft_groups(policy: SoftPolicy, critics: TwinCritic, temperature: Temperature, plan: NetPlan) -> list[Group]:
    """Each net with its own optimiser; the temperature with a plain Adam, which nothing decays."""
    actor, critic = plan.actor, plan.critic or plan.actor
    groups = [
        Group("actor", list(policy.parameters()), actor.optim_spec, actor.lr_scheduler_spec, actor.clip_grad_val),
        Group("q1", list(critics.q1.parameters()), critic.optim_spec, critic.lr_scheduler_spec, critic.clip_grad_val),
        Group("q2", list(critics.q2.parameters()), critic.optim_spec, critic.lr_scheduler_spec, critic.clip_grad_val),
    ]
    if temperature.learnt:
        adam = OptimSpec(name="Adam", lr=temperature.spec.alpha_lr or actor.optim_spec.lr)
        bounds = temperature.spec.log_alpha_min, temperature.spec.log_alpha_max
        groups.append(Group("alpha", [temperature.log_alpha], adam, actor.lr_scheduler_spec, None, bounds))
    return groups


def soft_notes(spec: SoftSpec, spaces: Spaces) -> list[str]:
    """Settings that say less than they seem to."""
    notes = list[str]()
    if spec.action_pdtype == "GumbelSoftmax":
        notes.append(
            "agent.algorithm.action_pdtype: the exact mean over actions takes the place of GumbelSoftmax's samples."
        )
    if spec.fixed_alpha is None and spec.alpha_anneal_frames:
        notes.append("agent.algorithm.alpha_anneal_frames: nothing to anneal without fixed_alpha; ignored.")
    if spaces.action_kind != "discrete":
        for key in ("entropy_anneal", "entropy_penalty_coef"):
            if key in spec.model_fields_set:
                notes.append(f"agent.algorithm.{key}: for discrete actions only; ignored.")
    return notes
