"""What a spec means in full, and which keys there are: read from the components themselves."""

from __future__ import annotations

from typing import Any

from slm_lab.agent.algorithm import ALGORITHMS
from slm_lab.agent.algorithm.soft import EntropyAnneal
from slm_lab.agent.memory import MEMORIES
from slm_lab.agent.memory.imitation import ImitationKeys
from slm_lab.agent.net import NETS
from slm_lab.agent.net.batch_renorm import BatchRenormSpec
from slm_lab.agent.plan import AgentPlan
from slm_lab.spec.load import dump
from slm_lab.spec.parse import Model
from slm_lab.spec.schema import AgentSpec, EnvSpec, LossSpec, LrSpec, MetaSpec, OptimSpec, Schedule, Spec


def components() -> dict[str, type[Model]]:
    """Every section and component a spec can hold, by the name a user knows."""
    sections: dict[str, type[Model]] = {"spec": Spec, "agent": AgentSpec, "env": EnvSpec, "meta": MetaSpec}
    parts: dict[str, type[Model]] = {
        "sil_replay_name": ImitationKeys,
        "schedule": Schedule,
        "optim_spec": OptimSpec,
        "loss_spec": LossSpec,
        "lr_scheduler_spec": LrSpec,
        "batch_renorm": BatchRenormSpec,
        "entropy_anneal": EntropyAnneal,
    }
    named = {name: cls.Spec for registry in (ALGORITHMS, MEMORIES, NETS) for name, cls in registry.items()}
    return {**sections, **named, **parts}


def resolved(spec: Spec, plan: AgentPlan) -> dict[str, Any]:
    """A spec with every component's defaults filled in."""
    full = dump(spec)
    full["agent"]["algorithm"] = plan.spec.model_dump(mode="json")
    if plan.memory_spec is not None:
        full["agent"]["memory"] = plan.memory_spec.model_dump(mode="json")
    if plan.nets is not None:
        full["agent"]["net"] = plan.nets.actor.model_dump(mode="json")
        actor, critic = full["agent"]["net"], plan.nets.critic and plan.nets.critic.model_dump(mode="json")
        if spec.agent.critic_net is not None and plan.algorithm.takes_critic_net:
            full["agent"]["critic_net"] = critic
        else:
            actor |= {f"critic_{key}": value for key, value in (critic or {}).items() if value != actor.get(key)}
    return full
