"""Cards: the scores of all sessions of a complete run, and no score where there is no result."""

from __future__ import annotations

from pathlib import Path

import pytest
from result_folders import saved_spec, write_run, write_spec_only

from slm_lab.experiment.hub_card import card
from slm_lab.lib.errors import LabError

FOUR = (1.0, 2.0, 3.0, 6.0)  # a mean of 3
REPO = "tester/runs"


def test_a_card_tells_what_was_run_and_what_all_sessions_came_to(tmp_path: Path) -> None:
    spec = saved_spec("x", "DoubleDQN", memory={"name": "PrioritizedReplay"}, meta={"git_sha": "abc", "max_session": 2})
    folder = write_run(tmp_path / "x_2026", [FOUR, (4.0, 4.0, 4.0, 8.0)], spec)
    text = card(folder, REPO)
    assert text.startswith("# x_2026\n")
    for row in (
        "| Spec | x |",
        "| Algorithm | DDQN+PER |",
        "| Env | CartPole-v1 |",
        "| Frames | 400 a session, 2 sessions |",
        "| Mode | train |",
        "| Code | commit abc |",
        "| 0 | 3 |",
        "| 1 | 5 |",
    ):
        assert f"{row}\n" in text
    # of two sessions a bootstrap draws the worse one twice, or the better one, a quarter of the time each
    assert "Score: **4** [3, 5], the mean over all 2 sessions" in text
    assert "Incomplete" not in text


def test_one_session_has_no_interval(tmp_path: Path) -> None:
    text = card(write_run(tmp_path / "x_2026", [FOUR]), REPO)
    assert "Score: **3**, of its only session. " in text
    assert "| Frames | 400 a session, 1 session |\n" in text
    assert "| Code |" not in text  # nobody recorded it


def test_a_card_tells_how_to_load_the_run(tmp_path: Path) -> None:
    text = card(write_run(tmp_path / "x_2026", [FOUR]), REPO)
    assert "export HF_REPO=tester/runs\nslm-lab pull x_2026\nslm-lab enjoy data/x_2026\n" in text
    assert 'agent = slm_lab.load("data/x_2026")\n' in text


def test_the_curve_is_the_graph_beside_the_card(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "x_2026", [FOUR])
    assert "![" not in card(folder, REPO)
    graph = "graph/x_t0_trial_graph_mean_returns_ma_vs_frames.png"
    (folder / graph).write_bytes(b"")
    assert f"![Mean return over frames]({graph})\n" in card(folder, REPO)


@pytest.mark.parametrize(("second", "done"), [((7.0, 8.0), 1), ((), 1)])
def test_an_incomplete_run_says_so_and_shows_no_score(tmp_path: Path, second: tuple[float, ...], done: int) -> None:
    text = card(write_run(tmp_path / "x_2026", [FOUR, second]), REPO)
    assert f"**Incomplete**: {done} of 2 sessions reached their last frame, so there is no score.\n" in text
    assert "Score" not in text


def test_a_run_that_has_logged_nothing_has_a_card_too(tmp_path: Path) -> None:
    write_spec_only(tmp_path / "x_2026", saved_spec())
    text = card(tmp_path / "x_2026", REPO)
    assert "**Incomplete**: nothing is logged yet" in text
    assert "Score" not in text


def test_scores_are_those_of_evaluations_where_there_are_any(tmp_path: Path) -> None:
    meta = {"max_session": 1, "rigorous_eval": 4, "eval_frequency": 100}
    text = card(write_run(tmp_path / "x_2026", [FOUR], saved_spec(meta=meta)), REPO)
    assert "the mean of its last 100 rows of evaluations" in text


def test_a_search_shows_no_score_of_its_trials(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "s_2026", [FOUR, FOUR], saved_spec("s", meta={"record": {"mode": "search"}}))
    write_spec_only(folder, saved_spec("s"), trial=1)
    text = card(folder, REPO)
    assert "**A search, not a result**" in text
    assert "None of its settings was validated, so no score is shown." in text
    assert "| Mode | search |" in text
    assert "400 a session, 2 trials" in text
    assert "Score" not in text
    assert "slm_lab.load" not in text


def test_a_search_shows_what_was_validated(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "s_2026", [FOUR], saved_spec("s", meta={"record": {"mode": "search"}}))
    (folder / "s_validation.csv").write_text(
        "rank,trial,search_score,validated_score,low,high,folder\n1,7,480.5,450.25,440,460,s_t7_2026\n2,3,470,,,,\n"
    )
    text = card(folder, REPO)
    assert "| rank | trial | search score | validated score | low | high | folder |\n" in text
    assert "| 1 | 7 | 480.5 | 450.25 | 440 | 460 | s_t7_2026 |\n" in text
    assert "| 2 | 3 | 470 | - | - | - |  |\n" in text
    assert "None of its settings" not in text
    for nothing in ("", "rank,trial,search_score,validated_score,low,high,folder\n"):
        (folder / "s_validation.csv").write_text(nothing)
        assert "None of its settings was validated" in card(folder, REPO)


def test_a_name_with_a_bar_does_not_break_the_table(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "x", [FOUR], saved_spec(algorithm="my:A|B", meta={"max_session": 1}))
    assert "| Algorithm | my:A\\|B |" in card(folder, REPO)


def test_a_folder_without_a_run_has_no_card(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="not a run folder"):
        card(tmp_path, REPO)
    with pytest.raises(LabError, match="no such run folder"):
        card(tmp_path / "none", REPO)
