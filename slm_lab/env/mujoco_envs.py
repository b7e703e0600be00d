"""What the MuJoCo envs show and how they score N envs, in the order of operations and the precision of Gymnasium's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from slm_lab.env.classic_physics import c_square
from slm_lab.types import Array

Score = Callable[[Array, Array, Array], tuple[Array, Array]]


class Task(NamedTuple):
    """One kind of env over rows [N, d] of what is read off each simulation. Settings are those of one made env."""

    read: Callable[[Any], tuple[Array, ...]]  # simulation -> its arrays that make up a row: views, read at every step
    observe: Callable[[Array], Array]  # rows -> new array of observations [N, o]
    score: Score  # rows before a step, rows after it, float32 actions -> rewards [N], terminated [N]
    forces: bool = False  # whether forces of contacts are read: only then are they worked out


def read_state(data: Any) -> tuple[Array, ...]:
    """Positions and speeds of all joints."""
    return data.qpos, data.qvel


def effort(weight: float, action: Array) -> Array:
    """Weighted sums [N] of squares."""
    cost: Array = weight * np.square(action).sum(1)
    return cost


def never(rows: Array) -> Array:
    return np.zeros(len(rows), bool)


# runners: the way they make along x, less the effort; those that can fall get a reward for being up


def half_cheetah(env: Any) -> Task:
    return _crawler(env, skipped=1)


def swimmer(env: Any) -> Task:
    return _crawler(env, skipped=2)


def _crawler(env: Any, skipped: int) -> Task:
    first = skipped if env._exclude_current_positions_from_observation else 0
    forward, control, dt = env._forward_reward_weight, env._ctrl_cost_weight, env.dt

    def score(before: Array, rows: Array, action: Array) -> tuple[Array, Array]:
        return forward * ((rows[:, 0] - before[:, 0]) / dt) - effort(control, action), never(rows)

    return Task(read_state, lambda rows: rows[:, first:].astype(np.float32), score)


def hopper(env: Any) -> Task:
    least, most = env._healthy_state_range

    def in_range(rows: Array) -> Array:
        state = rows[:, 2:]
        inside: Array = ((least < state) & (state < most)).all(1)
        return inside

    return _walker(env, in_range)


def walker2d(env: Any) -> Task:
    return _walker(env, lambda rows: np.ones(len(rows), bool))


def _walker(env: Any, in_range: Callable[[Array], Array]) -> Task:
    first = 1 if env._exclude_current_positions_from_observation else 0
    forward, control, dt, bonus = env._forward_reward_weight, env._ctrl_cost_weight, env.dt, env._healthy_reward
    (low, high), (left, right), falls = env._healthy_z_range, env._healthy_angle_range, env._terminate_when_unhealthy
    speeds = slice(env.model.nq - first, None)

    def observe(rows: Array) -> Array:
        obs = rows[:, first:].astype(np.float32)
        np.clip(obs[:, speeds], -10, 10, out=obs[:, speeds])  # 10 is the same in both precisions
        return obs

    def score(before: Array, rows: Array, action: Array) -> tuple[Array, Array]:
        z, angle = rows[:, 1], rows[:, 2]
        up = in_range(rows) & (low < z) & (z < high) & (left < angle) & (angle < right)
        reward = forward * ((rows[:, 0] - before[:, 0]) / dt) + up * bonus - effort(control, action)
        return reward, ~up if falls else never(rows)

    return Task(read_state, observe, score)


# those that feel contacts: forces on bodies are shown and cost; the first body is the world, which is not shown


def ant(env: Any) -> Task:
    size, body = env.model.nq + env.model.nv, env.model.body(env._main_body).id
    forces = slice(size, size + 6 * env.model.nbody)
    first = 2 if env._exclude_current_positions_from_observation else 0
    shown = np.r_[first:size, size + 6 : forces.stop if env._include_cfrc_ext_in_observation else size + 6]
    felt = slice(size - first, None)
    forward, control, contact = env._forward_reward_weight, env._ctrl_cost_weight, env._contact_cost_weight
    (low, high), (weakest, strongest) = env._healthy_z_range, env._contact_force_range
    bonus, falls, dt = env._healthy_reward, env._terminate_when_unhealthy, env.dt

    def read(data: Any) -> tuple[Array, ...]:
        return data.qpos, data.qvel, data.cfrc_ext.ravel(), data.xpos[body, :1]

    def observe(rows: Array) -> Array:
        obs: Array = rows.take(shown, 1)
        np.clip(obs[:, felt], weakest, strongest, out=obs[:, felt])
        return obs.astype(np.float32)

    def score(before: Array, rows: Array, action: Array) -> tuple[Array, Array]:
        up = np.isfinite(rows[:, :size]).all(1) & (low <= rows[:, 2]) & (rows[:, 2] <= high)
        costs = effort(control, action) + effort(contact, np.clip(rows[:, forces], weakest, strongest))
        reward = (rows[:, -1] - before[:, -1]) / dt * forward + up * bonus - costs
        return reward, ~up if falls else never(rows)

    return Task(read, observe, score, forces=True)


def humanoid(env: Any) -> Task:
    shown, forces = _humanoid_columns(env)
    mass, total, centres = env.model.body_mass, env.model.body_mass.sum(), (-1, env.model.nbody, 3)
    forward, control, contact = env._forward_reward_weight, env._ctrl_cost_weight, env._contact_cost_weight
    (low, high), (least, most), dt = env._healthy_z_range, env._contact_cost_range, env.dt
    bonus, falls = env._healthy_reward, env._terminate_when_unhealthy

    def place(rows: Array) -> Array:
        """Where along x the centre of mass is, [N]."""
        sums = np.einsum("b,nbj->nj", mass, rows[:, forces.stop :].reshape(centres))
        x: Array = sums[:, 0] / total
        return x

    def score(before: Array, rows: Array, action: Array) -> tuple[Array, Array]:
        up = (low < rows[:, 2]) & (rows[:, 2] < high)
        impact = np.clip(effort(contact, rows[:, forces]), least, most)
        costs = effort(control, action.astype(np.float64)) + impact
        reward = forward * ((place(rows) - place(before)) / dt) + up * bonus - costs
        return reward, ~up if falls else never(rows)

    return Task(
        lambda data: (*_read_humanoid(data), data.xipos.ravel()),
        lambda rows: rows.take(shown, 1).astype(np.float32),
        score,
        forces=True,
    )


def humanoid_standup(env: Any) -> Task:
    shown, forces = _humanoid_columns(env)
    control, contact, timestep = env._ctrl_cost_weight, env._impact_cost_weight, env.model.opt.timestep
    least, most = env._impact_cost_range

    def score(before: Array, rows: Array, action: Array) -> tuple[Array, Array]:
        impact = np.clip(effort(contact, rows[:, forces]), least, most)
        reward = rows[:, 2] / timestep - effort(control, action.astype(np.float64)) - impact + 1
        return reward, never(rows)

    return Task(_read_humanoid, lambda rows: rows.take(shown, 1).astype(np.float32), score, forces=True)


def _read_humanoid(data: Any) -> tuple[Array, ...]:
    return data.qpos, data.qvel, data.cinert.ravel(), data.cvel.ravel(), data.qfrc_actuator, data.cfrc_ext.ravel()


def _humanoid_columns(env: Any) -> tuple[Array, slice]:
    """Columns of a row that are shown, and those of the forces; flags count only where they are True itself."""
    model = env.model
    parts = (
        (model.nq, 2 if env._exclude_current_positions_from_observation else 0, True),
        (model.nv, 0, True),
        (10 * model.nbody, 10, env._include_cinert_in_observation),
        (6 * model.nbody, 6, env._include_cvel_in_observation),
        (model.nv, 6, env._include_qfrc_actuator_in_observation),
        (6 * model.nbody, 6, env._include_cfrc_ext_in_observation),
    )
    shown, start = list[int](), 0
    for size, skipped, wanted in parts:
        if wanted is True:
            shown.extend(range(start + skipped, start + size))
        start += size
    return np.array(shown), slice(start - 6 * model.nbody, start)


# arms: the distance to what they reach for, and the effort


def reacher(env: Any) -> Task:
    tip, target = env.model.body("fingertip").id, env.model.body("target").id
    distance, control, size = env._reward_dist_weight, env._reward_control_weight, env.model.nq

    def read(data: Any) -> tuple[Array, ...]:
        return data.qpos, data.qvel[:2], data.xpos[tip], data.xpos[target]

    def observe(rows: Array) -> Array:
        angles = rows[:, :2]
        parts = np.cos(angles), np.sin(angles), rows[:, 2 : size + 2], (rows[:, -6:-3] - rows[:, -3:])[:, :2]
        return np.concatenate(parts, axis=1, dtype=np.float32, casting="same_kind")

    def score(before: Array, rows: Array, action: Array) -> tuple[Array, Array]:
        reward = -length(rows[:, -6:-3] - rows[:, -3:]) * distance + -np.square(action).sum(1) * control
        return reward, never(rows)

    return Task(read, observe, score)


def pusher(env: Any) -> Task:
    tip, thing, goal = (env.model.body(name).id for name in ("tips_arm", "object", "goal"))
    near, distance, control = env._reward_near_weight, env._reward_dist_weight, env._reward_control_weight

    def read(data: Any) -> tuple[Array, ...]:
        return data.qpos[:7], data.qvel[:7], data.xpos[tip], data.xpos[thing], data.xpos[goal]

    def score(before: Array, rows: Array, action: Array) -> tuple[Array, Array]:
        places = rows[:, 17:20]
        reward = -length(places - rows[:, 20:]) * distance + -np.square(action).sum(1) * control
        return reward + -length(places - rows[:, 14:17]) * near, never(rows)

    return Task(read, lambda rows: rows.astype(np.float32), score)


def length(vectors: Array) -> Array:
    """Lengths [N] of vectors [N, 3]; of single vectors Gymnasium takes the root of their dot product, too."""
    lengths: Array = np.sqrt(np.vecdot(vectors, vectors))
    return lengths


# pendulums: a reward for being up


def inverted_pendulum(env: Any) -> Task:
    def score(before: Array, rows: Array, action: Array) -> tuple[Array, Array]:
        down = ~np.isfinite(rows).all(1) | (np.abs(rows[:, 1]) > 0.2)
        return (~down).astype(np.float64), down

    return Task(read_state, lambda rows: rows.astype(np.float32), score)


def inverted_double_pendulum(env: Any) -> Task:
    """A row: the cart, two angles, their speeds, the force that holds the cart, and where the tip is."""
    bonus = env._healthy_reward

    def read(data: Any) -> tuple[Array, ...]:
        return data.qpos, data.qvel, data.qfrc_constraint[:1], data.site_xpos[0]

    def observe(rows: Array) -> Array:
        angles, limited = rows[:, 1:3], np.clip(rows[:, 3:7], -10, 10)
        parts = rows[:, :1], np.sin(angles), np.cos(angles), limited
        return np.concatenate(parts, axis=1, dtype=np.float32, casting="same_kind")

    def score(before: Array, rows: Array, action: Array) -> tuple[Array, Array]:
        x, y = rows[:, 7], rows[:, 9]
        down = y <= 1
        off = 0.01 * c_square(x) + c_square(y - 2)
        fast = 1e-3 * c_square(rows[:, 4]) + 5e-3 * c_square(rows[:, 5])
        return bonus * (~down).astype(np.int64) - off - fast, down

    return Task(read, observe, score)


TASKS: dict[str, Callable[[Any], Task]] = {
    "Ant-v5": ant,
    "HalfCheetah-v5": half_cheetah,
    "Hopper-v5": hopper,
    "Humanoid-v5": humanoid,
    "HumanoidStandup-v5": humanoid_standup,
    "InvertedDoublePendulum-v5": inverted_double_pendulum,
    "InvertedPendulum-v5": inverted_pendulum,
    "Pusher-v5": pusher,
    "Reacher-v5": reacher,
    "Swimmer-v5": swimmer,
    "Walker2d-v5": walker2d,
}
