"""Every public spec loads unmodified, and survives a round trip."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import BULLET, FILES, SPECS, sets_for, specs_of

from slm_lab.agent.plan import plan_agent
from slm_lab.lib.errors import SpecError
from slm_lab.spec.load import dump, for_mode, load, spec_names
from slm_lab.spec.parse import parse
from slm_lab.spec.schema import Spec
from slm_lab.spec.space import parse_space

SUFFIX = {"": "", "CartPole-v1": "_cartpole", "HalfCheetah-v5": "_halfcheetah", "ALE/Pong-v5": "_pong"}

pytestmark = pytest.mark.skipif(not FILES, reason="the public specs are not here")


@pytest.mark.parametrize("path", [path for path in FILES if path != BULLET], ids=lambda path: path.name)
def test_every_spec_of_a_public_file_loads_and_reads_back(path: Path) -> None:
    names = spec_names(path)
    assert names
    for name in names:
        sets = sets_for(path, name)
        got = load(path, name, sets).spec
        env = next((text.removeprefix("env=") for text in sets if text.startswith("env=")), "")
        assert (
            got.name
            == name
            + {"": "", "CartPole-v1": "_cartpole", "HalfCheetah-v5": "_halfcheetah", "ALE/Pong-v5": "_pong"}[env]
        )
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


def test_every_public_search_space_can_be_drawn_from() -> None:
    searched = [spec for path in FILES if path != BULLET for spec in specs_of(path) if spec.search]
    assert len(searched) > 20
    for spec in searched:
        space = parse_space(spec, [], lambda drawn: plan_agent(drawn.agent, drawn.env.num_envs, []))
        assert space.dimensions, spec.name
