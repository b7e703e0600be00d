"""MuJoCo Playground's tasks: on CPU by EnvPool's ports of them, on a GPU by the library itself."""

from __future__ import annotations

from slm_lab.env.adapter import Face
from slm_lab.env.envpool import make_pool, pool_face
from slm_lab.env.envpool_task import PoolTask, entries, library, settle
from slm_lab.env.playground_config import JaxTask, gpu_ready, jax_task
from slm_lab.env.playground_jax import jax_face, make_jax
from slm_lab.env.watch import Use
from slm_lab.lib.errors import SpecError, lookup
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import VecEnv

PREFIX = "playground/"

_DM_CONTROL = """
    AcrobotSwingup AcrobotSwingupSparse BallInCup CartpoleBalance CartpoleBalanceSparse CartpoleSwingup
    CartpoleSwingupSparse CheetahRun FingerSpin FingerTurnEasy FingerTurnHard FishSwim HopperHop HopperStand HumanoidRun
    HumanoidStand HumanoidWalk PendulumSwingup PointMass ReacherEasy ReacherHard SwimmerSwimmer6 WalkerRun WalkerStand
    WalkerWalk
"""
_ROBOTS = """
    ApolloJoystickFlatTerrain BarkourJoystick BerkeleyHumanoidJoystickFlatTerrain BerkeleyHumanoidJoystickRoughTerrain
    G1JoystickFlatTerrain G1JoystickRoughTerrain Go1Footstand Go1Getup Go1Handstand Go1JoystickFlatTerrain
    Go1JoystickRoughTerrain H1InplaceGaitTracking H1JoystickGaitTracking Op3Joystick SpotFlatTerrainJoystick SpotGetup
    SpotJoystickGaitTracking T1JoystickFlatTerrain T1JoystickRoughTerrain
    AeroCubeRotateZAxis AlohaHandOver AlohaSinglePegInsertion LeapCubeReorient LeapCubeRotateZAxis PandaOpenCabinet
    PandaPickCube PandaPickCubeCartesian PandaPickCubeOrientation PandaRobotiqPushCube
"""
DM_CONTROL = tuple(_DM_CONTROL.split())
PORTS: dict[str, str] = {name: f"{name}-v1" for name in (*DM_CONTROL, *_ROBOTS.split())} | {
    "BallInCup": "BallInCupCatch-v1",
    "PointMass": "PointMassEasy-v1",
}
"""Playground's tasks and EnvPool's ids of them."""

# entries that EnvPool fills for other tasks of the same body only: here they are always zero
EMPTY = {"FingerSpin": ("target_position", "dist_to_target")} | dict.fromkeys(
    ("HumanoidRun", "HumanoidStand", "HumanoidWalk"), ("position",)
)

# a random policy runs these to their time limit
FIXED_LENGTH = {
    *DM_CONTROL,
    "AlohaHandOver",
    "AlohaSinglePegInsertion",
    "Go1Getup",
    "PandaOpenCabinet",
    "PandaPickCube",
    "PandaPickCubeCartesian",
    "PandaPickCubeOrientation",
    "SpotFlatTerrainJoystick",
}


def make_playground(spec: EnvSpec, key: tuple[int, ...], use: Use) -> VecEnv:
    """One of Playground's tasks as a vector env that takes the policy's actions."""
    task = chosen_task(spec, use.training)
    if isinstance(task, PoolTask):
        return make_pool(spec, task, key, use)
    return make_jax(spec, task, task.name in FIXED_LENGTH, key, use)


def playground_face(spec: EnvSpec) -> Face:
    """The spaces of a task, by whichever library steps it."""
    task = chosen_task(spec, training=False)
    return pool_face(task) if isinstance(task, PoolTask) else jax_face(task)


def check_playground(spec: EnvSpec) -> None:
    """SpecError for a task, a backend or an argument that cannot be had; nothing is built."""
    chosen_task(spec, training=True)


def chosen_task(spec: EnvSpec, training: bool) -> PoolTask | JaxTask:
    """The task as EnvPool's port or as the library's own: that where asked for, or where a GPU can run it."""
    name = spec.name.removeprefix(PREFIX)
    lookup(PORTS, name, "env.name", "MuJoCo Playground task")
    if spec.backend == "gymnasium":
        raise SpecError(f"env.backend: Gymnasium has no {spec.name}. Allowed: auto, envpool, jax.")
    if spec.backend == "jax" or (spec.backend == "auto" and gpu_ready()):
        return jax_task(spec, name)
    return playground_task(spec, training)


def playground_task(spec: EnvSpec, training: bool) -> PoolTask:
    """EnvPool's port of a task. Observations are one array, as Playground's, unless the privileged ones are shown."""
    name = spec.name.removeprefix(PREFIX)
    task_id = PORTS[name]
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
