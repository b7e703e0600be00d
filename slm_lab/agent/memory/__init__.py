"""Memories by name."""

from __future__ import annotations

from collections.abc import Mapping

from slm_lab.agent.memory.base import MemoryBase
from slm_lab.agent.memory.onpolicy import OnPolicyBatchReplay, OnPolicyCrossEntropy, OnPolicyReplay
from slm_lab.agent.memory.replay import PrioritizedReplay, Replay
from slm_lab.lib.plugin import component

MEMORIES: Mapping[str, type[MemoryBase]] = {
    "OnPolicyReplay": OnPolicyReplay,
    "OnPolicyBatchReplay": OnPolicyBatchReplay,
    "OnPolicyCrossEntropy": OnPolicyCrossEntropy,
    "PrioritizedReplay": PrioritizedReplay,
    "Replay": Replay,
}


def memory_class(name: object, path: str) -> type[MemoryBase]:
    """The memory a spec names: one of ours, or `module:Class` of the user's own."""
    return component(MEMORIES, name, path, "memory", MemoryBase)
