"""What all algorithms share: their contract, common spec keys, and how they hold their state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from pydantic import Field
from torch import nn

from slm_lab.agent.net.base import NetSpec
from slm_lab.agent.net.optim import Optim
from slm_lab.agent.net.program import Compiler
from slm_lab.agent.net.recurrent import RecurrentNetSpec
from slm_lab.lib.rng import Consumer, Rng
from slm_lab.spec.parse import Float, Model
from slm_lab.spec.schema import Schedule
from slm_lab.types import Act, ActionKind, Cadence, Lessons, Metrics, Shape, State, Stretch

TARGET_KEYS = dict.fromkeys(("update_type", "update_frequency", "polyak_coef"), "there is no target net")
"""Net keys that mean nothing to an algorithm without a target net."""

Key = tuple[int, int, int]  # (base seed, trial, session): where every random stream of a session starts


class AlgorithmSpec(Model):
    """Keys every algorithm takes."""

    name: str = Field(description="algorithm class, or `module:Class` of your own")
    action_pdtype: str | None = Field(
        "default", description="action distribution; default: Categorical, Normal, ... by action space"
    )
    action_policy: str = Field("default", description="default (sample), random, epsilon_greedy or boltzmann")
    explore_var_spec: Schedule | None = Field(
        None, description="epsilon or temperature over frames, for action policies that take one"
    )


class PolicyGradientSpec(AlgorithmSpec):
    """Keys of algorithms that climb a policy gradient."""

    gamma: Float = Field(ge=0, le=1, description="discount")
    entropy_coef_spec: Schedule | None = Field(
        None, description="weight of the entropy bonus over frames; unset for none"
    )
    policy_loss_coef: Float = Field(1.0, description="factor on the policy loss")


@dataclass(frozen=True)
class NetPlan:
    """Parsed net specs: the actor's (or only) net, and the critic's where the algorithm has one."""

    actor: NetSpec
    critic: NetSpec | None = None

    @property
    def stretch(self) -> Stretch | None:
        """How much of an episode nets with a memory learn from at a time; None where there are none."""
        specs = [spec for spec in (self.actor, self.critic) if isinstance(spec, RecurrentNetSpec)]
        return specs[0].stretch if specs else None


class Actor(Protocol):
    """What decides: the part of an algorithm that acting needs."""

    hidden: Mapping[str, int]  # sizes of what its nets remember, by entry of the observation

    def act(self, obs: Any, frame: int, rng: Rng) -> Act: ...
    def best(self, obs: Any) -> Act: ...


class Compilable(Protocol):
    """Something that nets do often."""

    def compile(self, compiler: Compiler, nets: nn.Module) -> None: ...


class Workload(NamedTuple):
    """How much an algorithm computes: gradient steps for a frame, and rows of one of them."""

    steps: float = 0.0
    rows: int = 0


class Algorithm(ABC):
    """Learns from a memory and decides. Knows spaces, nets and frames; no env, file, clock or mode."""

    Spec: ClassVar[type[AlgorithmSpec]]
    memory_kind: ClassVar[Literal["on_policy", "replay"] | None] = "on_policy"
    actions: ClassVar[tuple[ActionKind, ...]] = ("discrete", "continuous", "multi_discrete", "multi_binary")
    whole_episodes: ClassVar[bool] = False  # must an on-policy batch consist of finished episodes?
    imitates: ClassVar[bool] = False  # does its memory section name a replay memory beside the on-policy one?
    has_critic: ClassVar[bool] = False
    takes_critic_net: ClassVar[bool] = False  # may `agent.critic_net` describe its critics?
    remembers: ClassVar[bool] = True  # can its nets have a memory of the episode?
    unused_net_keys: ClassVar[Mapping[str, str]] = {}
    extra: ClassVar[Mapping[str, Shape]] = {}  # what act() adds to the memory, beside the action
    logs: ClassVar[tuple[str, ...]] = ()  # metrics that are columns of the table

    actor: Actor
    nets: nn.ModuleDict
    optim: Optim | None = None
    programs: tuple[Compilable, ...] = ()  # what it can do by compiled functions

    def __init__(self, key: Key) -> None:
        self.rng = Rng(*key, Consumer.TRAIN)
        self.notes: list[str] = []

    @classmethod
    def settle(cls, spec: Any, num_envs: int, unit: str, batch_size: int | None) -> Any:
        """The spec with the defaults that depend on other sections; a SpecError where settings contradict another."""
        return spec

    @abstractmethod
    def cadence(self, unit: Literal["step", "frame", "episode"]) -> Cadence:
        """When to update, in the unit the memory counts."""

    def compile(self, compiler: Compiler) -> None:
        """From now on learn and act by compiled functions."""
        for program in self.programs:
            program.compile(compiler, self.nets)

    def act(self, obs: Any, frame: int, rng: Rng) -> Act:
        """Actions for N observations, exploring."""
        return self.actor.act(obs, frame, rng)

    def best(self, obs: Any) -> Act:
        """The most likely actions for N observations."""
        return self.actor.best(obs)

    def workload(self, num_envs: int, batch_size: int) -> Workload:
        """For batches of a fixed size; `batch_size` is that of a replay memory."""
        return Workload()

    @abstractmethod
    def update(self, memory: Lessons, frame: int) -> Metrics:
        """Learn from what the memory holds; `loss` and `opt_steps` are always reported."""

    def state_dict(self) -> State:
        optim = {} if self.optim is None else self.optim.state_dict()
        return {"nets": self.nets.state_dict(), "optim": optim, "rng": self.rng.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.nets.load_state_dict(state["nets"])
        if self.optim is not None:
            self.optim.load_state_dict(state["optim"])
        self.rng.load_state_dict(state["rng"])


def resolve_device(gpu: bool | int | str | None) -> torch.device:
    """A net's `gpu` key as a device: a GPU only where there is one."""
    wanted = gpu is None or gpu == "auto" or bool(gpu)
    return torch.device("cuda" if wanted and torch.cuda.is_available() else "cpu")
