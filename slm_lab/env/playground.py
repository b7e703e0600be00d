"""MuJoCo Playground's tasks on CPU, by EnvPool's ports of them: their own episode lengths and action repeats."""

from __future__ import annotations

from slm_lab.env.envpool import make_pool
from slm_lab.env.envpool_task import PoolTask, entries, library, settle
from slm_lab.lib.errors import SpecError, lookup
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import VecEnv

PREFIX = "playground/"

_DM_CONTROL = """
    AcrobotSwingup AcrobotSwingupSparse CartpoleBalance CartpoleBalanceSparse CartpoleSwingup CartpoleSwingupSparse
    CheetahRun FingerSpin FingerTurnEasy FingerTurnHard FishSwim HopperHop HopperStand HumanoidRun HumanoidStand
    HumanoidWalk PendulumSwingup ReacherEasy ReacherHard SwimmerSwimmer6 WalkerRun WalkerStand WalkerWalk
"""
_ROBOTS = """
    ApolloJoystickFlatTerrain BarkourJoystick BerkeleyHumanoidJoystickFlatTerrain BerkeleyHumanoidJoystickRoughTerrain
    G1JoystickFlatTerrain G1JoystickRoughTerrain Go1Footstand Go1Getup Go1Handstand Go1JoystickFlatTerrain
    Go1JoystickRoughTerrain H1InplaceGaitTracking H1JoystickGaitTracking Op3Joystick SpotFlatTerrainJoystick SpotGetup
    SpotJoystickGaitTracking T1JoystickFlatTerrain T1JoystickRoughTerrain
    AeroCubeRotateZAxis AlohaHandOver AlohaSinglePegInsertion LeapCubeReorient LeapCubeRotateZAxis PandaOpenCabinet
    PandaPickCube PandaPickCubeCartesian PandaPickCubeOrientation PandaRobotiqPushCube
"""
PORTS: dict[str, str] = {name: f"{name}-v1" for name in (*_DM_CONTROL.split(), *_ROBOTS.split())} | {
    "BallInCup": "BallInCupCatch-v1",
    "PointMass": "PointMassEasy-v1",
}
"""Playground's tasks and EnvPool's ids of them."""

# entries that EnvPool fills for other tasks of the same body only: here they are always zero
EMPTY = {"FingerSpin": ("target_position", "dist_to_target")} | dict.fromkeys(
    ("HumanoidRun", "HumanoidStand", "HumanoidWalk"), ("position",)
)

# a random policy runs these to their time limit, as it does all tasks of DM Control
FIXED_LENGTH = {
    "AlohaHandOver",
    "AlohaSinglePegInsertion",
    "Go1Getup",
    "PandaOpenCabinet",
    "PandaPickCube",
    "PandaPickCubeCartesian",
    "PandaPickCubeOrientation",
    "SpotFlatTerrainJoystick",
}


def make_playground(spec: EnvSpec, key: tuple[int, ...], training: bool, render_mode: str | None) -> VecEnv:
    """One of Playground's tasks as a vector env that takes the policy's actions."""
    return make_pool(spec, playground_task(spec, training), key, training, render_mode)


def check_playground(spec: EnvSpec) -> None:
    """SpecError for a task, a backend or an argument that cannot be had; nothing is built."""
    playground_task(spec, training=True)


def playground_task(spec: EnvSpec, training: bool) -> PoolTask:
    """EnvPool's port of a task. Observations are one array, as Playground's, unless the privileged ones are shown."""
    name = spec.name.removeprefix(PREFIX)
    task_id = lookup(PORTS, name, "env.name", "MuJoCo Playground task")
    _check_backend(spec)
    kwargs = spec.kwargs
    length = kwargs.pop("episode_length", None)
    if not (length is None or (isinstance(length, int) and length > 0)):
        raise SpecError(f"env.episode_length: got {length!r}; allowed: a number of steps.")
    if "action_repeat" in kwargs and "action_repeat" not in library().make_spec(task_id).config._fields:
        raise SpecError(f"env.action_repeat: EnvPool's port of {name} has no such argument; an action is one step.")
    task = settle(task_id, kwargs, spec.max_t, training, length)
    if name in FIXED_LENGTH:
        task = task._replace(fixed_length=True)
    shown = entries(task_id)
    if not shown or "state" in shown:
        return task
    return task._replace(shown=tuple(entry for entry in shown if entry not in EMPTY.get(name, ())))


def _check_backend(spec: EnvSpec) -> None:
    if spec.backend == "jax":
        raise SpecError(
            "env.backend: jax needs MuJoCo Playground's own library (extra `playground`), which the lab does not run "
            "yet. Allowed for playground/ tasks: auto or envpool, which step EnvPool's ports on CPU."
        )
    if spec.backend == "gymnasium":
        raise SpecError(f"env.backend: Gymnasium has no {spec.name}. Allowed: auto, envpool.")
