"""How a session computes, threads and compiled functions: by rule from spec, versions and cores, never by measuring.

Both change sums in their last bits. So they are recorded, and a run that is continued or verified keeps them.
"""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import nn

import slm_lab
from slm_lab.agent import Agent
from slm_lab.agent.net.gradient_step import uncompilable
from slm_lab.agent.net.program import Compiler
from slm_lab.agent.plan import AgentPlan
from slm_lab.lib.cores import cores
from slm_lab.lib.errors import SpecError
from slm_lab.lib.library import compiler_exists
from slm_lab.spec.load import dump
from slm_lab.spec.schema import Spec
from slm_lab.types import Spaces

WORTH = 40_000  # gradient steps of all sessions from which on compiling pays for itself
SAVED, COST = 0.7e-3, 25.0  # seconds that a compiled step saves, and that compiling a function takes: for the estimate
WIDE = 4_000_000  # weights times rows of a gradient step from which on a second thread helps
LIBRARIES = Path.home() / ".cache" / "slm-lab"
RANDOM_LAYERS = (nn.modules.dropout._DropoutNd, nn.RReLU)

Wanted = Literal["auto"] | bool


@dataclass(frozen=True)
class Computing:
    """Torch threads of a session, whether it runs compiled functions, and a word on why."""

    threads: int
    compiled: bool
    said: str


def choose_computing(
    spec: Spec, plan: AgentPlan, agent: Agent, wanted: Wanted, threads: int | None, jobs: int
) -> Computing:
    """What the rules say for a spec whose agent was built once."""
    load = agent.algorithm.workload(spec.env.num_envs, plan.batch_size)
    weights = sum(param.numel() for param in agent.algorithm.nets.parameters())
    many = max(1, cores() // jobs) if has_images(agent) or weights * load.rows >= WIDE else 1
    compiled, said = _compiled(spec, plan, agent, wanted, load.steps * spec.session_frames * spec.meta.max_session)
    return Computing(threads or many, compiled, said)


def has_images(agent: Agent) -> bool:
    return any(isinstance(module, nn.Conv1d | nn.Conv2d) for module in agent.algorithm.nets.modules())


def _compiled(spec: Spec, plan: AgentPlan, agent: Agent, wanted: Wanted, steps: float) -> tuple[bool, str]:
    if wanted is False:
        return False, "compile: false, so every step is run by Python."
    reason = why_not(spec, plan, agent)
    if wanted is True:
        if reason is not None:
            raise SpecError(f"meta.compile: true cannot be: {reason}.")
        return True, "compile: true."
    if reason is not None:
        return False, f"compile: auto, not compiled: {reason}."
    if any(param.device.type != "cpu" for param in agent.algorithm.nets.parameters()):
        return False, "compile: auto, not compiled: on a GPU only with `compile: true`."
    if has_images(agent):
        return False, "compile: auto, not compiled: convolutions take most of the time, and compiling saves none of it."
    each = steps * SAVED / spec.meta.max_session
    price = COST * len(agent.algorithm.programs)
    estimate = f"{steps:,.0f} gradient steps in all; compiling would save about {each:,.0f} s a session, and takes "
    estimate += f"about {price:.0f} s where this was never compiled before"
    return steps >= WORTH, f"compile: auto, {'' if steps >= WORTH else 'not '}compiled: {estimate}."


def why_not(spec: Spec, plan: AgentPlan, agent: Agent) -> str | None:
    """Why an agent's steps cannot be compiled; None where they can."""
    algorithm = agent.algorithm
    if not algorithm.programs or algorithm.optim is None:
        return f"{plan.spec.name} has nothing to compile"
    if ":" in plan.spec.name or _own(spec.agent.model_dump()):
        return "of components of your own it is not known when they change"
    if spec.workers > 1:
        return "workers that share their weights step them one at a time"
    if plan.stretch is not None:
        return "sequences of recurrent nets differ in length"
    if plan.memory is not None and (plan.memory.unit == "episode" or algorithm.whole_episodes):
        return "whole episodes differ in length"
    if any(isinstance(module, RANDOM_LAYERS) for module in algorithm.nets.modules()):
        return "dropout draws its own random numbers"
    if not compiler_exists():
        return "there is no C++ compiler"
    return uncompilable(algorithm.optim)


def _own(tree: object) -> bool:
    """Whether some component of an agent section is `module:Class`."""
    if isinstance(tree, dict):
        named = [tree[key] for key in ("name", "type", "sil_replay_name") if key in tree]
        return any(isinstance(name, str) and ":" in name for name in named) or any(map(_own, tree.values()))
    return any(map(_own, tree)) if isinstance(tree, list) else False


def compiler_for(spec: Spec, spaces: Spaces, folder: Path) -> Compiler:
    """A compiler whose libraries fit this agent, this code and this machine alone."""
    facts = (code_hash(), torch.__version__, platform.python_version(), processor(), torch.get_num_threads())
    agent = dump(spec)["agent"]
    return Compiler(folder, repr((*facts, agent, spaces)))


@cache
def code_hash() -> str:
    """Of all code of the lab: a library is made from it."""
    found = hashlib.sha256()
    package = Path(slm_lab.__file__).parent
    for path in sorted(package.rglob("*.py")):
        found.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return found.hexdigest()


@cache
def processor() -> str:
    """What a processor can do, which compiled code makes use of."""
    said = Path("/proc/cpuinfo")
    lines = said.read_text().splitlines() if said.exists() else [platform.processor()]
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {flags}"
