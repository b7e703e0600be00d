"""Every public spec loads unmodified, and survives a round trip."""

from __future__ import annotations

from pathlib import Path

import pytest

from slm_lab.lib.errors import SpecError
from slm_lab.spec.load import dump, for_mode, load, spec_names
from slm_lab.spec.parse import parse
from slm_lab.spec.schema import Spec
from slm_lab.spec.text import PLACEHOLDER

SPECS = Path(__file__).resolve().parents[2] / "../shared/specs"
BULLET = SPECS / "benchmark/async_sac/async_sac_halfcheetah_pybullet.json"
FILES = sorted(
    path
    for path in SPECS.rglob("*")
    if path.suffix in (".json", ".yaml", ".yml") and path.name != "_random_baseline.json"
)
FILL = {"env": "CartPole-v1", "max_frame": "1e6"}

pytestmark = pytest.mark.skipif(not FILES, reason="the public specs are not here")


def sets_for(path: Path, name: str) -> list[str]:
    """`-s` texts for the placeholders of one spec, as its own error names them."""
    try:
        load(path, name)
    except SpecError as error:
        return [f"{key}={FILL[key]}" for key in dict.fromkeys(PLACEHOLDER.findall(str(error)))]
    return []


@pytest.mark.parametrize("path", [path for path in FILES if path != BULLET], ids=lambda path: path.name)
def test_every_spec_of_a_public_file_loads_and_reads_back(path: Path) -> None:
    names = spec_names(path)
    assert names
    for name in names:
        sets = sets_for(path, name)
        got = load(path, name, sets).spec
        assert got.name == name + ("_cartpole" if "env=CartPole-v1" in sets else "")
        assert parse(Spec, dump(got), "", []) == got
        assert for_mode(got, "test").env.max_frame == 40


def test_the_bullet_spec_is_refused_with_the_reason() -> None:
    (name,) = spec_names(BULLET)
    with pytest.raises(SpecError, match=r"env\.name: HalfCheetahBulletEnv-v0: PyBullet.*-s env=HalfCheetah-v5"):
        load(BULLET, name)
    assert load(BULLET, name, ["env=HalfCheetah-v5"]).spec.env.name == "HalfCheetah-v5"


def test_the_old_pinball_id_becomes_the_one_of_today() -> None:
    path = SPECS / "benchmark/dqn/dqn_videopinball.json"
    got = load(path, spec_names(path)[0])
    assert got.spec.env.name == "ALE/VideoPinball-v5"
    assert "env.name: VideoPinball-v0 is now ALE/VideoPinball-v5." in got.notes
