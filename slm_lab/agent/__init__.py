"""An agent: an algorithm, its memory and its observation statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.algorithm.base import Algorithm, Key
from slm_lab.agent.context import Context, with_entries, with_spaces
from slm_lab.agent.memory.base import MemoryBase
from slm_lab.agent.memory.imitation import Imitation, ImitationSpec, ReturnReplay
from slm_lab.agent.memory.onpolicy import OnPolicyBatchReplay, OnPolicyReplay
from slm_lab.agent.memory.replay import Replay
from slm_lab.agent.memory.sequences import SequenceReplay
from slm_lab.agent.normalize import NormalizedMemory, ObsNormalizer
from slm_lab.agent.plan import AgentPlan
from slm_lab.lib.errors import SpecError
from slm_lab.lib.rng import Consumer, Rng
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Act, Array, Lessons, Metrics, Obs, Spaces, State, Step

FOREVER = 2**62  # a frame after the end of every schedule: what evaluation acts at


class Seen(NamedTuple):
    """Observations as the env gave them, and as the agent acts on them."""

    raw: Obs
    shown: Obs


class Agent:
    """What the training loop talks to: see, act, learn; and decide, for evaluation."""

    def __init__(
        self, algorithm: Algorithm, memory: MemoryBase | None, normalizer: ObsNormalizer | None, envs: int, key: Key
    ) -> None:
        self.algorithm, self.memory, self.normalizer = algorithm, memory, normalizer
        self.context = Context(algorithm.actor.hidden, envs)
        # what is replayed is normalised by the statistics of the day it is learnt from, not of the day it was seen
        self.stores_raw = memory is not None and memory.stores_raw
        self.lessons: Lessons | None = memory
        if memory is not None and normalizer is not None and memory.kind == "replay":
            self.lessons = NormalizedMemory(memory, normalizer)
        self.rng = Rng(*key, Consumer.ACT)

    def see(self, obs: Obs, mask: Array | None = None) -> Seen:
        """Take in what the env shows, and which actions it allows."""
        obs = self.context(obs, mask)
        if self.normalizer is None:
            return Seen(obs, obs)
        self.normalizer.update(obs)
        return Seen(obs, self.normalizer(obs))

    def act(self, seen: Seen, frame: int) -> Act:
        """Exploring actions for what was seen."""
        return self.algorithm.act(seen.shown, frame, self.rng)

    def learn(self, seen: Seen, act: Act, step: Step, frame: int) -> Metrics | None:
        """Store one vector step, and update when there is enough."""
        self.context.carry(act, step.terminated | step.truncated)
        if self.memory is None or self.lessons is None:
            return None
        next_obs = with_entries(step.next_obs, step.next_mask, act.hidden)
        if self.normalizer is not None and not self.stores_raw:
            # by the same statistics as obs: they must not differ between the two ends of a transition
            next_obs = self.normalizer(next_obs)
        self.memory.add(seen.raw if self.stores_raw else seen.shown, act, step._replace(next_obs=next_obs))
        return self.algorithm.update(self.lessons, frame) if self.memory.ready() else None

    def decide(self, obs: Obs, rng: Rng | None = None) -> Act:
        """With frozen statistics, the most likely actions, or samples where `rng` is given. Changes nothing."""
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        return self.algorithm.best(obs) if rng is None else self.algorithm.act(obs, FOREVER, rng)

    def state_dict(self) -> State:
        return {
            "algorithm": self.algorithm.state_dict(),
            "memory": {} if self.memory is None else self.memory.state_dict(),
            "normalizer": {} if self.normalizer is None else self.normalizer.state_dict(),
            "context": self.context.state_dict(),
            "rng": self.rng.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.algorithm.load_state_dict(state["algorithm"])
        if self.memory is not None:
            self.memory.load_state_dict(state["memory"])
        if self.normalizer is not None:
            self.normalizer.load_state_dict(state["normalizer"])
        self.context.load_state_dict(state["context"])
        self.rng.load_state_dict(state["rng"])

    def policy_state(self) -> State:
        """What acting needs: nets and observation statistics. A copy, for training goes on."""
        nets = {name: tensor.detach().clone() for name, tensor in self.algorithm.nets.state_dict().items()}
        return {"nets": nets, "normalizer": {} if self.normalizer is None else self.normalizer.state_dict()}

    def load_policy_state(self, state: State) -> None:
        self.algorithm.nets.load_state_dict(state["nets"])
        if self.normalizer is not None:
            self.normalizer.load_state_dict(state["normalizer"])


class Player:
    """A trained agent at play in `envs` envs, of which it remembers what its nets need. The agent does not change."""

    def __init__(self, agent: Agent, envs: int) -> None:
        self.agent, self.context = agent, Context(agent.algorithm.actor.hidden, envs)
        self.last: Act | None = None

    def __call__(self, obs: Obs, mask: Array | None = None, rng: Rng | None = None) -> Array:
        """Env actions: the most likely, or samples where `rng` is given."""
        self.last = self.agent.decide(self.context(obs, mask), rng)
        return self.last.env_action

    def ended(self, ended: Array) -> None:
        """Told which episodes [N] ended with the last actions."""
        if self.last is not None:
            self.context.carry(self.last, ended)


def make_agent(plan: AgentPlan, env: EnvSpec, spaces: Spaces, key: Key) -> Agent:
    """Build the agent of a plan for what an env shows and takes."""
    if spaces.action_kind not in plan.algorithm.actions:
        others = [name for name, cls in ALGORITHMS.items() if spaces.action_kind in cls.actions]
        raise SpecError(
            f"agent.algorithm.name: {plan.spec.name} takes {' or '.join(plan.algorithm.actions)} actions; "
            f"{env.name} has {spaces.action_kind} ones. These take them: {', '.join(others)}."
        )
    _check_memory_of_nets(plan)
    raw = with_spaces(spaces, {})
    normalizer, shown = None, raw
    if env.normalize_obs or env.clip_obs is not None:
        normalizer = ObsNormalizer(spaces.obs_shape, env.normalize_obs, env.obs_clip)
        shown = with_spaces(replace(spaces, obs_dtype=_floats(spaces.obs_dtype)), {})
    algorithm: Algorithm = plan.algorithm(plan.spec, plan.nets, shown, key)  # type: ignore[call-arg, arg-type]
    raw, shown = (with_spaces(each, algorithm.actor.hidden) for each in (raw, shown))
    memory = _make_memory(plan, algorithm, raw, shown, normalizer, Rng(*key, Consumer.MEMORY))
    return Agent(algorithm, memory, normalizer, spaces.num_envs, key)


def _check_memory_of_nets(plan: AgentPlan) -> None:
    if plan.stretch is not None and not plan.algorithm.remembers:
        others = [name for name, cls in ALGORITHMS.items() if cls.remembers and cls.memory_kind]
        raise SpecError(
            f"agent.net.type: {plan.spec.name} learns from single steps, which RecurrentNet has no use for. "
            f"These train it: {', '.join(others)}."
        )


def _make_memory(
    plan: AgentPlan, algorithm: Algorithm, raw: Spaces, shown: Spaces, normalizer: ObsNormalizer | None, rng: Rng
) -> MemoryBase | None:
    if plan.memory is None or plan.memory_spec is None:
        return None
    cls, spec = plan.memory, plan.memory_spec
    if cls is OnPolicyBatchReplay and algorithm.whole_episodes:
        cls = OnPolicyReplay  # still counted in vector steps, but only finished episodes are handed out
    rollout = spec.rollout if isinstance(spec, ImitationSpec) else spec
    spaces = raw if cls.stores_raw else shown
    memory = cls(rollout, spaces, algorithm.cadence(plan.memory.unit), dict(algorithm.extra), rng)
    if isinstance(spec, ImitationSpec) and plan.replay is not None:
        return Imitation(memory, ReturnReplay(spec.replay, plan.replay.make_sampler, raw, rng, normalizer), raw)
    return SequenceReplay(memory, *plan.stretch) if plan.stretch and isinstance(memory, Replay) else memory


def _floats(dtype: Any) -> Any:
    return {key: np.dtype(np.float32) for key in dtype} if isinstance(dtype, dict) else np.dtype(np.float32)
