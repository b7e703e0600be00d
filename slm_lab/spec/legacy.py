"""Forms of older SLM-Lab specs, read as today's: lists of one, renamed and inert keys, nulls that mean the default."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from slm_lab.lib.errors import SpecError
from slm_lab.spec.overrides import LISTED
from slm_lab.spec.parse import Model, show
from slm_lab.spec.schema import AgentSpec, EnvSpec, MetaSpec, Spec
from slm_lab.spec.tree import Tree

_SECTIONS: dict[str, type[Model]] = {"agent": AgentSpec, "env": EnvSpec, "meta": MetaSpec}


def modernise(tree: Tree, notes: list[str]) -> None:
    """Bring a spec into today's form, in place; does nothing to one that has it."""
    if "spec_params" in tree:
        raise SpecError(
            "spec_params: a key of SLM-Lab 4; use ${var} placeholders and one -s var=value per run instead."
        )
    for section in ("agent", "env"):
        if isinstance(tree.get(section), list):
            tree[section] = _only(tree[section], section)
    if isinstance(tree.get("search"), dict):
        tree["search"] = _search(tree["search"])
    if isinstance(tree.get("env"), dict):
        _env_keys(tree["env"], notes)
    _drop(Spec, tree, "", notes)
    for section, model in _SECTIONS.items():
        if isinstance(tree.get(section), dict):
            _drop(model, tree[section], f"{section}.", notes)


def _only(items: list[Any], path: str) -> Any:
    """The entry of a list of one."""
    if len(items) != 1:
        raise SpecError(f"{path}: multi-agent not supported: expected one mapping, got a list of {len(items)}.")
    return items[0]


def _search(space: Tree) -> Tree:
    """A search space without SLM-Lab 4's lists: `agent: [...]` and `agent.0.x` both mean `agent`."""
    return {
        LISTED.sub(r"\1\2.", key): _only(item, f"search.{key}")
        if key in ("agent", "env") and isinstance(item, list)
        else item
        for key, item in space.items()
    }


def _env_keys(env: Tree, notes: list[str]) -> None:
    """Keys of SLM-Lab 4 that EnvSpec would pass on to the env's constructor."""
    if env.get("frame_op") is not None:
        raise SpecError(
            f"env.frame_op: got {show(env['frame_op'])}; frame_op is not supported. Atari frames are stacked by "
            "themselves, and a RecurrentNet learns from sequences of `seq_len`: remove frame_op and frame_op_len."
        )
    for key in ("frame_op", "frame_op_len"):
        if key in env:
            del env[key]
            notes.append(f"env.{key}: a key of SLM-Lab 4, without effect here; ignored.")
    if "normalize_state" in env:
        value = env.pop("normalize_state")
        if env.setdefault("normalize_obs", value) != value:
            raise SpecError("env.normalize_state: the older name of normalize_obs, which says otherwise; remove one.")
        notes.append("env.normalize_state: read as normalize_obs.")


def _drop(model: type[Model], section: Tree, prefix: str, notes: list[str]) -> None:
    """Remove inert keys, with a note, and nulls where the model's default is something else."""
    for key in list(section):
        field = model.model_fields.get(key)
        if field is None and key in model.inert:
            notes.append(f"{prefix}{key}: {model.inert[key]}; ignored.")
            del section[key]
        elif field and not field.is_required() and section[key] is None and _default(field) is not None:
            del section[key]


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})
