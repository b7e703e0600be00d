"""From the mappings of a spec's agent to parsed components, before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slm_lab.agent.algorithm import algorithm_class
from slm_lab.agent.algorithm.base import Algorithm, AlgorithmSpec, NetPlan
from slm_lab.agent.memory import memory_class
from slm_lab.agent.memory.base import MemoryBase, MemorySpec
from slm_lab.agent.memory.imitation import ImitationSpec
from slm_lab.agent.memory.replay import Replay, ReplaySpec
from slm_lab.agent.net import net_class
from slm_lab.agent.net.base import NetSpec
from slm_lab.agent.net.optim import LrSchedule, make_loss, optimizer_kwargs
from slm_lab.agent.net.recurrent import RecurrentNetSpec
from slm_lab.lib.errors import SpecError
from slm_lab.spec.parse import parse
from slm_lab.spec.schema import AgentSpec
from slm_lab.types import Stretch


@dataclass(frozen=True)
class AgentPlan:
    """An agent's classes and their typed settings."""

    algorithm: type[Algorithm]
    spec: AlgorithmSpec
    memory: type[MemoryBase] | None
    memory_spec: MemorySpec | None
    nets: NetPlan | None
    replay: type[Replay] | None = None  # what imitated episodes are drawn as from, where the algorithm imitates

    @property
    def stretch(self) -> Stretch | None:
        """How much of an episode its nets learn from at a time; None where they have no memory."""
        return None if self.nets is None else self.nets.stretch

    @property
    def batch_size(self) -> int:
        """Rows of a batch that a replay memory draws; 0 where there is none."""
        spec = self.memory_spec.replay if isinstance(self.memory_spec, ImitationSpec) else self.memory_spec
        return spec.batch_size if isinstance(spec, ReplaySpec) else 0

    @property
    def gamma(self) -> float:
        """The agent's discount, which reward normalisation needs too."""
        return float(getattr(self.spec, "gamma", 0.99))


def plan_agent(spec: AgentSpec, num_envs: int, notes: list[str]) -> AgentPlan:
    """Parse every section by the component it names; contradictions are SpecErrors, inert keys go to `notes`."""
    algorithm = algorithm_class(spec.algorithm.get("name"), "agent.algorithm.name")
    parsed = parse(algorithm.Spec, spec.algorithm, "agent.algorithm", notes)
    critic_net = spec.critic_net if algorithm.takes_critic_net else None
    if spec.critic_net is not None and critic_net is None:
        notes.append(f"agent.critic_net: {parsed.name} takes none; ignored.")
    if algorithm.memory_kind is None:
        return AgentPlan(algorithm, parsed, None, None, None)
    memory, memory_spec, replay = _plan_memory(algorithm, spec.memory, notes)
    nets = _plan_nets(algorithm, parsed.name, spec.net, critic_net, notes)
    batch_size = memory_spec.batch_size if isinstance(memory_spec, ReplaySpec) else None
    parsed = algorithm.settle(parsed, num_envs, memory.unit, batch_size)
    return AgentPlan(algorithm, parsed, memory, memory_spec, nets, replay)


def _plan_memory(
    algorithm: type[Algorithm], data: Mapping[str, Any], notes: list[str]
) -> tuple[type[MemoryBase], MemorySpec, type[Replay] | None]:
    memory = memory_class(data.get("name"), "agent.memory.name")
    if memory.kind != algorithm.memory_kind:
        wanted = {
            "on_policy": "an on-policy memory, e.g. OnPolicyBatchReplay",
            "replay": "a replay memory, e.g. Replay",
        }
        reason = f"{algorithm.__name__} learns from {wanted[algorithm.memory_kind or '']}"
        raise SpecError(f"agent.memory.name: {data['name']!r} does not fit: {reason}.")
    if algorithm.imitates:
        return memory, *_plan_imitation(algorithm, memory, data, notes)
    return memory, parse(memory.Spec, data, "agent.memory", notes), None


def _plan_imitation(
    algorithm: type[Algorithm], memory: type[MemoryBase], data: Mapping[str, Any], notes: list[str]
) -> tuple[ImitationSpec, type[Replay]]:
    """Two memories of one section: keys that the on-policy memory knows are its own, the others are the replay's."""
    name, wanted = data.get("sil_replay_name"), "the memory it imitates from, Replay or PrioritizedReplay"
    if name is None:
        raise SpecError(f"agent.memory.sil_replay_name: missing key (required): {algorithm.__name__} takes {wanted}.")
    replay = memory_class(name, "agent.memory.sil_replay_name")
    if not issubclass(replay, Replay):
        raise SpecError(f"agent.memory.sil_replay_name: {name!r} does not fit: {algorithm.__name__} takes {wanted}.")
    own = {key: value for key, value in data.items() if key in memory.Spec.model_fields}
    rest = {key: value for key, value in data.items() if key not in own and key != "sil_replay_name"}
    rollout_spec = parse(memory.Spec, own, "agent.memory", notes)
    replay_spec = parse(replay.Spec, {**rest, "name": name}, "agent.memory", notes)
    assert isinstance(replay_spec, ReplaySpec)
    spec = ImitationSpec(name=rollout_spec.name, sil_replay_name=name, rollout=rollout_spec, replay=replay_spec)
    return spec, replay


def _plan_nets(
    algorithm: type[Algorithm],
    name: str,
    data: Mapping[str, Any],
    critic_net: Mapping[str, Any] | None,
    notes: list[str],
) -> NetPlan:
    actor, critic = split_by_net(data) if algorithm.has_critic else (dict(data), None)
    said, path = list[str](), "agent.net"
    if critic_net is not None:
        twice = [key for key in data if key.startswith("critic_") and key.removeprefix("critic_") in (critic or {})]
        notes.extend(f"agent.net.{key}: agent.critic_net describes the critics; ignored." for key in twice)
        critic, path = dict(critic_net), "agent.critic_net"
    plan = NetPlan(_plan_net(actor, said), None if critic is None else _plan_net(critic, said, path))
    notes.extend(dict.fromkeys(said))  # what both nets say is said once
    for key, reason in algorithm.unused_net_keys.items():
        if key in plan.actor.model_fields_set:
            notes.append(f"agent.net.{key}: {reason} in {name}; ignored.")
    _check_sequences(plan)
    if plan.critic is None or not plan.actor.use_same_optim or critic_net is not None:
        return plan
    same = {key: getattr(plan.actor, key) for key in ("optim_spec", "lr_scheduler_spec")}
    return NetPlan(plan.actor, plan.critic.model_copy(update=same))


def _check_sequences(plan: NetPlan) -> None:
    """Nets that learn from the same sequences must agree on how long those are."""
    stretches = {net.stretch for net in (plan.actor, plan.critic) if isinstance(net, RecurrentNetSpec)}
    if len(stretches) > 1:
        given = " and ".join(f"seq_len {s.length} with burn_in {s.burn_in}" for s in stretches)
        raise SpecError(f"agent.net.seq_len: actor and critic learn from the same sequences; got {given}.")


def _plan_net(data: Mapping[str, Any], notes: list[str], path: str = "agent.net") -> NetSpec:
    try:
        spec = parse(net_class(data.get("type"), f"{path}.type").Spec, data, path, notes)
    except SpecError as error:  # a net's own messages speak of agent.net, wherever it is described
        raise SpecError(str(error).replace("agent.net.", f"{path}.")) from None
    optimizer_kwargs(spec.optim_spec)
    LrSchedule(spec.lr_scheduler_spec, base=1.0)
    make_loss(spec.loss_spec)
    return spec


def split_by_net(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(actor's keys, critic's keys) of a net section; `actor_x` and `critic_x` hold for one of them, if x is a key."""
    fields = net_class(data.get("type"), "agent.net.type").Spec.model_fields
    nets = {"actor": dict[str, Any](), "critic": dict[str, Any]()}
    prefixed = list[tuple[str, str, Any]]()
    for key, value in data.items():
        owner, _, rest = key.partition("_")
        if owner in nets and key not in fields and rest in fields:
            prefixed.append((owner, rest, value))
        else:
            nets["actor"][key] = nets["critic"][key] = value
    for owner, rest, value in prefixed:  # after the common keys, whatever the order in the file
        nets[owner][rest] = value
    return nets["actor"], nets["critic"]
