"""Acrobot for N envs, in the order of operations of Gymnasium's own: two links, Runge-Kutta steps of 0.2 s."""

from __future__ import annotations

import numpy as np

from slm_lab.env.classic_physics import Physics, c_square
from slm_lab.types import Array

TORQUES = np.array([-1.0, 0.0, 1.0])
FASTEST = np.array([[4 * np.pi], [9 * np.pi]])
GRAVITY = 9.8
DT = 0.2
TURN = 2 * np.pi


def draw(rng: np.random.Generator) -> Array:
    return rng.uniform(-0.1, 0.1, 4)


def step(state: Array, action: Array) -> tuple[Array, Array, Array]:
    new = _integrate(state.T, TORQUES[action])
    angles, speeds = new[:2], new[2:]
    _wrap(angles)
    np.minimum(np.maximum(speeds, -FASTEST), FASTEST, out=speeds)
    terminated = -np.cos(new[0]) - np.cos(new[1] + new[0]) > 1.0
    return new.T, terminated - 1.0, terminated


def observe(state: Array) -> Array:
    """Cosine and sine of both angles [N, 6], in the precision of the state."""
    obs = np.empty((len(state), 6), np.float32)
    angles = np.ascontiguousarray(state[:, :2])
    obs[:, 0:4:2], obs[:, 1:4:2], obs[:, 4:] = np.cos(angles), np.sin(angles), state[:, 2:]
    return obs


def _integrate(y: Array, torque: Array) -> Array:
    """Angles and speeds [4, N] one step on."""
    k1 = _rates(y, torque)
    k2 = _rates(y + DT / 2 * k1, torque)
    k3 = _rates(y + DT / 2 * k2, torque)
    k4 = _rates(y + DT * k3, torque)
    new: Array = y + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return new


def _rates(y: Array, torque: Array) -> Array:
    """How fast angles and speeds [4, N] change; factors of 1 are left out, they change no bit."""
    angle1, angle2, speed1, speed2 = y
    cos, sin = np.cos(angle2), np.sin(angle2)
    d1 = 0.25 + (1.25 + cos) + 1.0 + 1.0
    d2 = 0.25 + 0.5 * cos + 1.0
    squares = c_square(np.concatenate((speed1, speed2, d2))).reshape(3, -1)
    phi2 = 0.5 * GRAVITY * np.cos(angle1 + angle2 - np.pi / 2)
    phi1 = -0.5 * squares[1] * sin - speed2 * speed1 * sin + 1.5 * GRAVITY * np.cos(angle1 - np.pi / 2) + phi2
    rates = np.empty(y.shape)
    rates[:2] = y[2:]
    rates[3] = (torque + d2 / d1 * phi1 - 0.5 * squares[0] * sin - phi2) / (1.25 - squares[2] / d1)
    rates[2] = -(d2 * rates[3] + phi1) / d1
    return rates


def _wrap(angles: Array) -> None:
    """Take whole turns off, in place, until all lie in [-pi, pi]."""
    while np.count_nonzero(high := angles > np.pi):
        angles[high] -= TURN
    while np.count_nonzero(low := angles < -np.pi):
        angles[low] += TURN


ACROBOT = Physics(4, draw, step, observe, np.dtype(np.float32))
