"""Everything that can be known to be wrong before a run starts, and nothing is written."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import psutil

from slm_lab.agent import Agent, make_agent
from slm_lab.agent.context import with_spaces
from slm_lab.agent.memory.base import MemorySpec
from slm_lab.agent.memory.imitation import ImitationSpec
from slm_lab.agent.memory.replay import ReplaySpec
from slm_lab.agent.plan import AgentPlan, plan_agent
from slm_lab.env import check_env, make_env
from slm_lab.lib.errors import LabError, SpecError
from slm_lab.spec.random_baseline import baseline
from slm_lab.spec.schema import EnvSpec, Spec
from slm_lab.types import Spaces, VecEnv

FEW_UPDATES = 200
WORTH_A_WORD = 1_000_000  # bytes of a memory
USABLE = 0.9  # of the memory that is free


def check(spec: Spec, notes: list[str]) -> AgentPlan:
    """Validate a spec without building anything; what is odd but runs goes to `notes`."""
    plan = plan_agent(spec.agent, spec.env.num_envs, notes)
    check_env(spec.env)
    rows = spec.session_frames // spec.meta.log_frequency
    if rows < 3:
        notes.append(f"meta.log_frequency: {spec.meta.log_frequency} leaves {rows} rows in the whole run.")
    if baseline(spec.env.name, spec.env.kwargs) is None:
        notes.append(
            f"env.name: no random baseline of {spec.env.name} is known; strengths are measured from 0. "
            f"`slm-lab baseline {spec.env.name}` measures it."
        )
    return plan


class Preflight(NamedTuple):
    """A plan, an agent that was built by it for a single env, and how exactly the env resumes."""

    plan: AgentPlan
    agent: Agent
    exact: str


def preflight(spec: Spec, notes: list[str], facts: list[str], at_once: int = 1, free: int | None = None) -> Preflight:
    """Build env and agent once, small, so that what does not fit fails here.

    What is odd goes to `notes`, what is good to know to `facts`. `at_once` sessions share `free` bytes, by default
    what the machine has left.
    """
    plan = check(spec, notes)
    env = one_env(spec.env, plan.gamma)
    try:
        spaces = replace(env.spaces, num_envs=spec.env.num_envs)
        room = psutil.virtual_memory().available if free is None else free
        needed = plan_memory(plan, with_spaces(spaces, {}), at_once, room)
        agent = make_agent(plan, spec.env, env.spaces, (0, 0, 0))
        hidden = agent.algorithm.actor.hidden
        # what recurrent nets remember is stored too, and is known only once they are built
        facts.extend(plan_memory(plan, with_spaces(spaces, hidden), at_once, room) if hidden else needed)
        notes.extend(agent.algorithm.notes)
        every, unit = agent.algorithm.cadence("step").every, plan.memory and plan.memory.unit
        updates = spec.session_frames // (every * spec.env.num_envs)
        if agent.algorithm.memory_kind == "on_policy" and unit == "step" and updates < FEW_UPDATES:
            rows = every * spec.env.num_envs
            notes.append(f"agent.algorithm: batches of {rows} rows leave {updates} updates in the whole run.")
        return Preflight(plan, agent, env.exact)
    finally:
        env.close()


def plan_memory(plan: AgentPlan, spaces: Spaces, at_once: int, free: int) -> list[str]:
    """What an agent's memory will take once full, where that is worth a word; a SpecError where it is not there."""
    memory, spec = plan.memory, plan.memory_spec
    if plan.replay is not None and isinstance(spec, ImitationSpec):
        memory, spec = plan.replay, spec.replay  # the rollout beside it is small
    if memory is None or spec is None:
        return []
    needed = memory.bytes_needed(spec, spaces)
    together = f", {readable(at_once * needed)} for {at_once} at once" if at_once > 1 else ""
    kept = f"keeps {spec.max_size:,} transitions: " if isinstance(spec, ReplaySpec) else "needs "
    said = f"agent.memory: {spec.name} {kept}{readable(needed)} a session{together}"
    if at_once * needed > free:
        fits = _what_fits(spec, spaces.num_envs, free / (at_once * needed))
        raise SpecError(f"{said}; {readable(free)} are free.{fits}")
    return [f"{said}."] if needed > WORTH_A_WORD else []


def _what_fits(spec: MemorySpec, num_envs: int, share: float) -> str:
    """Which size of a memory fits where `share` of what it needs is free, to two digits; nothing where none does."""
    if not isinstance(spec, ReplaySpec):
        return ""
    size = max(0, int(spec.max_size * USABLE * share) - num_envs)  # it has one row more than it keeps
    size -= size % 10 ** max(0, len(str(size)) - 2)
    return f" agent.memory.max_size: {size} fits." if size else ""


def readable(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def one_env(spec: EnvSpec, gamma: float) -> VecEnv:
    """A vector of one; what the env's own constructor or first reset objects to is a SpecError."""
    try:
        return make_env(spec.in_process(1), gamma, (0, 0, 0))
    except LabError:
        raise
    except Exception as error:
        given = f" with {spec.kwargs}" if spec.kwargs else ""
        raise SpecError(f"env: {spec.name} cannot be made{given}: {type(error).__name__}: {error}.") from error
