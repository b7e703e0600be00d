"""CartPole, MountainCar and Pendulum for N envs, in the order of operations and the precision of Gymnasium's own."""

from __future__ import annotations

import math

import numpy as np

from slm_lab.env.classic_physics import Physics, c_cos, c_square, c_square_float32
from slm_lab.types import Array

Generator = np.random.Generator
Stepped = tuple[Array, Array, Array]

# CartPole: x, its speed, angle, its speed; and 1 once the pole has fallen, as only the first fall is rewarded.
# Constants are arrays without dims, which numpy takes in two thirds of the time of a Python number.

PUSHES = np.array([-10.0, 10.0])
GRAVITY = np.array(9.8)
POLE_MASS = np.array(0.1)
TOTAL_MASS = np.array(0.1 + 1.0)
LENGTH = np.array(0.5)
POLE_MOMENT = np.array(0.1 * 0.5)
FOUR_THIRDS = np.array(4.0 / 3.0)
TAU = np.array(0.02)
FARTHEST = np.array(2.4)
STEEPEST = np.array(12 * 2 * math.pi / 360)
ONE = np.ones(1)


def draw_cart_pole(rng: Generator) -> Array:
    return rng.uniform(-0.05, 0.05, 4)


def step_cart_pole(state: Array, action: Array) -> Stepped:
    old = state.T
    angle, angle_speed = old[2], old[3]
    sin, cos = np.sin(angle), np.cos(angle)
    push = (PUSHES.take(action) + POLE_MOMENT * (angle_speed * angle_speed) * sin) / TOTAL_MASS
    inertia = LENGTH * (FOUR_THIRDS - POLE_MASS * (cos * cos) / TOTAL_MASS)
    new = np.zeros(old.shape)
    new[0:4:2] = old[1:4:2]
    new[3] = angle_rate = (GRAVITY * sin - cos * push) / inertia
    new[1] = push - POLE_MOMENT * angle_rate * cos / TOTAL_MASS
    new *= TAU
    new += old
    terminated = (np.abs(new[0]) > FARTHEST) | (np.abs(new[2]) > STEEPEST)
    reward = ONE.repeat(len(action))  # less than half the cost of ones()
    if np.count_nonzero(terminated):
        fallen = new[4]
        reward -= terminated * fallen
        fallen[terminated] = 1.0
    return new.T, reward, terminated


def observe_cart_pole(state: Array) -> Array:
    return state[:, :4].astype(np.float32, order="C")


# MountainCar: position and speed

THRUSTS = np.array([-0.001, 0.0, 0.001])


def draw_car(rng: Generator) -> Array:
    return rng.uniform(-0.6, -0.4, 1)


def step_car(state: Array, action: Array) -> Stepped:
    position, speed = state.T
    speed = speed + (THRUSTS[action] + c_cos(3 * position) * -0.0025)
    speed = np.minimum(np.maximum(speed, -0.07), 0.07)
    position = np.minimum(np.maximum(position + speed, -1.2), 0.6)
    speed[(position == -1.2) & (speed < 0)] = 0.0
    terminated = (position >= 0.5) & (speed >= 0)
    return np.array((position, speed)).T, -ONE.repeat(len(action)), terminated


def observe_car(state: Array) -> Array:
    return state[:, :2].astype(np.float32, order="C")


# MountainCarContinuous: position and speed, which Gymnasium keeps as float32s after the first step; and 1 after it.
# One operation on float32s gives the same bits in float64, rounded afterwards.

POWER = 0.0015
LEFT, RIGHT, GOAL, FASTEST = np.array([-1.2, 0.6, 0.45, 0.07], np.float32)


def step_continuous_car(state: Array, action: Array) -> Stepped:
    position, speed, moved = state.T
    asked = action[:, 0]
    faster = np.minimum(np.maximum(_accelerate(position, speed, moved == 0, asked), -FASTEST), FASTEST)
    new = np.ones((3, len(asked)))
    new[0] = position = np.minimum(np.maximum((position + faster).astype(np.float32), LEFT), RIGHT)
    faster[(position == LEFT) & (faster < 0)] = 0.0
    new[1] = faster.astype(np.float32)
    terminated = (position >= GOAL) & (faster >= 0)
    return new.T, terminated * 100.0 - np.square(asked, dtype=np.float64) * 0.1, terminated


def _accelerate(position: Array, speed: Array, first: Array, asked: Array) -> Array:
    """New speeds [N]: float64s where this is the first step, else float32s."""
    place = 3 * position
    rounded = place.astype(np.float32)
    starts = np.count_nonzero(first)
    slope = 0.0025 * c_cos(np.where(first, place, rounded) if starts else rounded)
    change = np.minimum(np.maximum(asked, -1.0), 1.0) * POWER - slope.astype(np.float32)
    clipped = np.abs(asked) > 1.0
    if np.count_nonzero(clipped):  # these forces become Python numbers: float64 until they meet the speed
        change = np.where(clipped, np.where(asked > 0, POWER, -POWER) - slope, change)
    faster: Array = (speed + change.astype(np.float32)).astype(np.float32)
    return np.where(first, speed + change, faster) if starts else faster


# Pendulum: angle and its speed. The torque stays float32 in what is computed from it alone.

SPREAD = np.array([np.pi, 1.0])


def draw_pendulum(rng: Generator) -> Array:
    return rng.uniform(-SPREAD, SPREAD)


def step_pendulum(state: Array, action: Array) -> Stepped:
    angle, speed = state.T
    torque = np.minimum(np.maximum(action[:, 0], -2.0), 2.0)
    off = (angle + np.pi) % (2 * np.pi) - np.pi
    cost = c_square(off) + 0.1 * c_square(speed) + 0.001 * c_square_float32(torque)
    new = np.empty((2, len(torque)))
    faster = speed + (15.0 * np.sin(angle) + 3.0 * torque) * 0.05
    speed = np.minimum(np.maximum(faster, -8.0), 8.0, out=new[1])
    np.add(angle, speed * 0.05, out=new[0])
    return new.T, -cost, np.zeros(len(torque), bool)


def observe_pendulum(state: Array) -> Array:
    angle, speed = state.T
    obs = np.empty((len(state), 3), np.float32)
    obs[:, 0], obs[:, 1], obs[:, 2] = np.cos(angle), np.sin(angle), speed
    return obs


CART_POLE = Physics(5, draw_cart_pole, step_cart_pole, observe_cart_pole)
MOUNTAIN_CAR = Physics(2, draw_car, step_car, observe_car)
CONTINUOUS_CAR = Physics(3, draw_car, step_continuous_car, observe_car, fewest=12)
PENDULUM = Physics(2, draw_pendulum, step_pendulum, observe_pendulum)
