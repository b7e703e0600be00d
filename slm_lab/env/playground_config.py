"""What a spec asks of MuJoCo Playground's own library: which task, with which config, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

from slm_lab.env.check import no_switches
from slm_lab.lib.errors import LabError, SpecError, hint
from slm_lab.spec.schema import EnvSpec

PRIVILEGED = "privileged"  # a key of a spec that the library does not know: show the entries meant for a critic too
IMAGES = "the lab takes Playground's tasks as vectors; images need its renderer and a GPU"
REFUSED = {"vision": IMAGES, "vision_config": IMAGES}


class JaxTask(NamedTuple):
    """One task of the library as a spec wants it."""

    name: str
    config: Any  # the library's own, with the spec's values in it
    limit: int  # actions of an episode
    repeat: int  # steps of the task for one action
    privileged: bool  # show what only a critic may see
    on_cpu: bool  # by JAX alone, which repeats to the last bit


def library() -> ModuleType:
    """MuJoCo Playground's package."""
    try:
        return import_module("mujoco_playground")
    except ImportError as error:
        raise SpecError(
            f"env.backend: jax needs MuJoCo Playground's own library ({error}). Install it with "
            "`pip install 'slm-lab[playground]'`, or write backend: envpool, which steps EnvPool's ports on CPU."
        ) from None


def gpu_ready() -> bool:
    """Whether the library is installed and JAX can use a GPU; found out without starting JAX, which is slow."""
    if find_spec("mujoco_playground") is None or not entry_points(group="jax_plugins"):
        return False
    import torch  # late: worker processes import this package, and torch would cost each of them seconds

    return torch.cuda.is_available()


def jax_task(spec: EnvSpec, name: str) -> JaxTask:
    """The task and its config; SpecError for keys it does not take and for models that are not there."""
    playground = library()
    robot = name not in playground.dm_control_suite.ALL_ENVS
    config = playground.registry.get_default_config(name)
    gpu = gpu_ready()
    if "impl" in config:
        config.impl = "warp" if gpu else "jax"  # warp's kernels are made for CUDA
    kwargs = spec.kwargs
    _check(kwargs, config.to_dict(), {PRIVILEGED} if robot else set())
    privileged = bool(kwargs.pop(PRIVILEGED, False))
    try:
        config.update(kwargs)
    except (TypeError, ValueError) as error:
        raise SpecError(f"env: the config of {name} does not take {kwargs}: {error}") from None
    if robot:
        _check_models(name)
    length, repeat = config.episode_length, config.action_repeat
    limit = -(-length // repeat)  # an episode's length counts steps of the task
    on_cpu = not gpu and config.get("impl", "jax") == "jax"
    return JaxTask(name, config, min(limit, spec.max_t or limit), repeat, privileged, on_cpu)


def _check(kwargs: dict[str, Any], config: dict[str, Any], switches: set[str]) -> None:
    """SpecError for keys that are refused or unknown, at any depth, and for values of the wrong kind."""
    wrong = [f"env.{key}: {REFUSED[key]}." for key in kwargs if key in REFUSED]
    rest = {key: value for key, value in kwargs.items() if key not in REFUSED}
    fields = dict.fromkeys((*EnvSpec.model_fields, *switches))
    wrong += _unknown({**fields, **{key: config[key] for key in config if key not in REFUSED}}, rest, "env")
    for key in ("episode_length", "action_repeat"):
        value = kwargs.get(key, 1)
        if type(value) is not int or value < 1:
            wrong.append(f"env.{key}: got {value!r}; allowed: a number of steps.")
    wrong += no_switches(kwargs, switches)
    if wrong:
        raise SpecError("\n".join(wrong))


def _unknown(known: Mapping[str, Any], given: Mapping[str, Any], path: str) -> Iterator[str]:
    """A line for each given key that is not known, and for each that is no mapping where one is wanted."""
    for key, value in given.items():
        if key not in known:
            yield f"{path}.{key}: unknown key.{hint(key, known)} Known: {', '.join(sorted(known))}."
        elif isinstance(known[key], Mapping):
            if isinstance(value, Mapping):
                yield from _unknown(known[key], value, f"{path}.{key}")
            else:
                yield f"{path}.{key}: got {value!r}; allowed: a mapping of {', '.join(sorted(known[key]))}."


def _check_models(name: str) -> None:
    """SpecError where the robots are missing: the library would fetch them from the network in the middle of a run."""
    folder = import_module("mujoco_playground._src.mjx_env").MENAGERIE_PATH
    if not folder.exists():
        raise SpecError(
            f"env.backend: jax needs the robot models of MuJoCo Menagerie for {name}, and {folder} does not exist. "
            "The library downloads them: where there is a network, run "
            f"""`python -c "from mujoco_playground import registry; registry.load('{name}')"` once. """
            "Or write backend: envpool, whose package holds its own."
        )


def load(task: JaxTask) -> Any:
    """The library's env."""
    if task.config.get("impl") == "warp":
        import_module("warp").config.quiet = True  # it tells of every kernel it loads
    with _body_by_name():
        try:
            return library().registry.load(task.name, config=task.config)
        except Exception as error:  # whatever the library does with a config
            message = f"env.name: MuJoCo Playground cannot load {task.name}: {type(error).__name__}: {error}"
            raise LabError(message) from error


@contextmanager
def _body_by_name() -> Iterator[None]:
    """The library takes MuJoCo 3.10 and later for one before 3.3, and calls a method by its old name."""
    spec = import_module("mujoco").MjSpec
    if "find_body" in vars(spec):
        yield
        return
    spec.find_body = spec.body
    try:
        yield
    finally:
        del spec.find_body
