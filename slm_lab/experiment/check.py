"""Everything that can be known to be wrong before a run starts, and nothing is written."""

from __future__ import annotations

from slm_lab.agent import make_agent
from slm_lab.agent.plan import AgentPlan, plan_agent
from slm_lab.env import check_env, make_env
from slm_lab.lib.errors import LabError, SpecError
from slm_lab.spec.random_baseline import baseline
from slm_lab.spec.schema import EnvSpec, Spec
from slm_lab.types import VecEnv

FEW_UPDATES = 200


def check(spec: Spec, notes: list[str]) -> AgentPlan:
    """Validate a spec without building anything; what is odd but runs goes to `notes`."""
    plan = plan_agent(spec.agent, spec.env.num_envs, notes)
    check_env(spec.env)
    rows = spec.env.max_frame // spec.meta.log_frequency
    if rows < 3:
        notes.append(f"meta.log_frequency: {spec.meta.log_frequency} leaves {rows} rows in the whole run.")
    if baseline(spec.env.name, spec.env.kwargs) is None:
        notes.append(f"env.name: no random baseline of {spec.env.name} is known; strengths are measured from 0.")
    return plan


def preflight(spec: Spec, notes: list[str]) -> tuple[AgentPlan, str]:
    """Build env and agent once, small, so that what does not fit fails here; (plan, how exactly the env resumes)."""
    plan = check(spec, notes)
    if spec.meta.distributed:
        raise SpecError(f"meta.distributed: {spec.meta.distributed!r} is not supported yet; allowed: false.")
    env = _one_env(spec.env, plan.gamma)
    try:
        agent = make_agent(plan, spec.env, env.spaces, (0, 0, 0))
        notes.extend(agent.algorithm.notes)
        every, unit = agent.algorithm.cadence("step").every, plan.memory and plan.memory.unit
        updates = spec.env.max_frame // (every * spec.env.num_envs)
        if agent.algorithm.memory_kind == "on_policy" and unit == "step" and updates < FEW_UPDATES:
            rows = every * spec.env.num_envs
            notes.append(f"agent.algorithm: batches of {rows} rows leave {updates} updates in the whole run.")
        return plan, env.exact
    finally:
        env.close()


def _one_env(spec: EnvSpec, gamma: float) -> VecEnv:
    """A vector of one; what the env's own constructor or first reset objects to is a SpecError."""
    try:
        return make_env(spec.model_copy(update={"num_envs": 1, "vectorization": "sync"}), gamma, (0, 0, 0))
    except LabError:
        raise
    except Exception as error:
        given = f" with {spec.kwargs}" if spec.kwargs else ""
        raise SpecError(f"env: {spec.name} cannot be made{given}: {type(error).__name__}: {error}.") from error
