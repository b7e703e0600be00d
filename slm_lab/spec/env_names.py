"""Env ids of older specs: renamed where Gymnasium refuses them, and always for Atari."""

from __future__ import annotations

import re

from slm_lab.lib.errors import SpecError
from slm_lab.spec.tree import Tree

_MUJOCO_NAMES = (
    "Ant HalfCheetah Hopper Humanoid HumanoidStandup InvertedDoublePendulum InvertedPendulum Pusher Reacher Swimmer "
    "Walker2d"
)
_MUJOCO = _MUJOCO_NAMES.split()
_ROBOSCHOOL = [name for name in _MUJOCO if name not in ("HumanoidStandup", "Pusher", "Swimmer")]

NEWER = (
    {
        "BipedalWalker-v2": "BipedalWalker-v3",
        "BipedalWalkerHardcore-v2": "BipedalWalkerHardcore-v3",
        "Blackjack-v0": "Blackjack-v1",  # the toy text one; the Atari game never had this id
        "CartPole-v0": "CartPole-v1",
        "LunarLander-v2": "LunarLander-v3",
        "LunarLanderContinuous-v2": "LunarLanderContinuous-v3",
        "Pendulum-v0": "Pendulum-v1",
    }
    | {f"{name}-v{version}": f"{name}-v5" for name in _MUJOCO for version in (1, 2, 3, 4)}
    | {f"Roboschool{name}-v1": f"{name}-v5" for name in _ROBOSCHOOL}
)
"""Old ids and today's."""

_GAMES = """
    Adventure AirRaid Alien Amidar Assault Asterix Asteroids Atlantis Atlantis2 Backgammon BankHeist BasicMath
    BattleZone BeamRider Berzerk Blackjack Bowling Boxing Breakout Carnival Casino Centipede ChopperCommand CrazyClimber
    Crossbow Darkchambers Defender DemonAttack DonkeyKong DoubleDunk Earthworld ElevatorAction Enduro Entombed Et
    FishingDerby FlagCapture Freeway Frogger Frostbite Galaxian Gopher Gravitar Hangman HauntedHouse Hero
    HumanCannonball IceHockey Jamesbond JourneyEscape Kaboom Kangaroo KeystoneKapers KingKong Klax Koolaid Krull
    KungFuMaster LaserGates LostLuggage MarioBros MiniatureGolf MontezumaRevenge MrDo MsPacman NameThisGame Othello
    Pacman Phoenix Pitfall Pitfall2 Pong Pooyan PrivateEye Qbert Riverraid RoadRunner Robotank Seaquest SirLancelot
    Skiing Solaris SpaceInvaders SpaceWar StarGunner Superman Surround Tennis Tetris TicTacToe3D TimePilot Trondead
    Turmoil Tutankham UpNDown Venture VideoCheckers VideoChess VideoCube VideoPinball WizardOfWor WordZapper YarsRevenge
    Zaxxon
"""
ATARI = frozenset(_GAMES.split())
"""Games of the Arcade Learning Environment, as its ids spell them."""

_ATARI_ID = re.compile(r"(\w+?)(?:NoFrameskip|Deterministic)?-v[04]")
_GONE = {
    re.compile(r"\w*BulletEnv-v\d+"): "PyBullet's envs are not made for Gymnasium",
    re.compile(r"Roboschool.*"): "Roboschool is gone, and this env has no MuJoCo kin",
    re.compile(r"unity.*", re.IGNORECASE): "Unity envs are not Gymnasium envs",
    re.compile(r"vizdoom.*", re.IGNORECASE): "VizDoom is not supported",
}


def update_env_name(tree: Tree, notes: list[str]) -> None:
    """Give the env the id it has today, in place, with a note; a SpecError where it has none."""
    env = tree.get("env")
    name = env.get("name") if isinstance(env, dict) else None
    if not isinstance(env, dict) or not isinstance(name, str):
        return
    atari = _ATARI_ID.fullmatch(name)
    if name in NEWER:
        newer = NEWER[name]
        if not refused(name):
            notes.append(f"env.name: {name} runs as asked; {newer} is the newer id.")
            return
    elif atari and atari[1] in ATARI:
        newer = f"ALE/{atari[1]}-v5"
    else:
        _refuse_gone(name)
        return
    env["name"] = newer
    notes.append(f"env.name: {name} is now {newer}.")


def refused(name: str) -> bool:
    """Whether the installed Gymnasium cannot make an old id."""
    import gymnasium  # heavy, and needed for old ids only

    if name == "Pusher-v4":  # registered, but only for mujoco < 3
        return True
    try:
        entry = gymnasium.spec(name).entry_point
    except gymnasium.error.Error:
        return True
    return not isinstance(entry, str)  # MuJoCo v2 and v3 are registered with a function that only raises


def _refuse_gone(name: str) -> None:
    """Raise for ids without successor; `module:Id` is the user's own and passes."""
    reason = next((text for pattern, text in _GONE.items() if pattern.fullmatch(name)), None)
    if reason is None or ":" in name:
        return
    kin = next((f"{body}-v5" for body in _MUJOCO if name.startswith(body)), None)
    near = f" MuJoCo's {kin} is the nearest env that runs: -s env={kin}." if kin else ""
    raise SpecError(
        f"env.name: {name}: {reason}.{near} If an installed package registers this id, write it as `package:{name}`."
    )
