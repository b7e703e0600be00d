"""Chunks: what a memory holds comes back bit for bit, each row is written once, and nothing is left or lost."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_helpers import assert_equal, by_content, files_of, session, state_of

from slm_lab.agent.memory.replay import PrioritizedReplay, PrioritizedReplaySpec, Replay, ReplaySpec
from slm_lab.experiment import checkpoint
from slm_lab.experiment.checkpoint import CheckpointError
from slm_lab.experiment.chunks import ChunkStore
from slm_lab.experiment.paths import Paths
from slm_lab.lib.io import write_bytes
from slm_lab.lib.rng import Rng
from slm_lab.spec.load import from_mapping
from slm_lab.types import Act, Array, Cadence, Rows, Spaces, Step

N = 3
SPACES = Spaces((4,), np.dtype(np.float32), "discrete", 2, N)
ROWS = 10  # a memory of 30 transitions
SLOT = 16 + 8 + 4 + 2 + 8  # bytes: obs, action, reward, two flags, place of a last observation


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slm_lab.agent.memory.ring.PIECE", 2 * N * SLOT)  # two rows


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path, "x").for_session(0)
    paths.make_folders()
    return paths


def replay(seed: int = 0, cls: type[Replay] = Replay) -> Replay:
    kind = PrioritizedReplaySpec if cls is PrioritizedReplay else ReplaySpec
    spec = kind(name=cls.__name__, batch_size=8, max_size=ROWS * N)
    return cls(spec, SPACES, Cadence(N, "frame"), {}, Rng(seed))


def add(memory: Replay, *rows: int) -> None:
    """Rows by number: their content follows from it. One env ends an episode in every second row."""
    for t in rows:
        assert memory.ring.written == t
        rng = np.random.default_rng(t)
        obs, next_obs = rng.random((2, N, 4), np.float32)
        ended = (np.arange(N) == t % N) & (t % 2 == 1)
        action = rng.integers(2, size=N)
        memory.add(obs, Act(action, action, {}), Step(rng.random(N), next_obs, ended & (t % 3 == 0), ended))


def filled(rows: int, cls: type[Replay] = Replay) -> Replay:
    memory = replay(cls=cls)
    add(memory, *range(rows))
    return memory


def save(paths: Paths, store: ChunkStore, memory: Replay, frame: int) -> None:
    """What a session does."""
    path = paths.checkpoint(frame)
    checkpoint.save(path, {"memory": memory.state_dict()}, store)
    store.prune(checkpoint.prune(paths.checkpoints(), path))


def resume(paths: Paths, cls: type[Replay] = Replay) -> tuple[Replay, ChunkStore]:
    """A new memory of another seed with the state of the newest checkpoint that can be read."""
    memory, store = replay(99, cls), ChunkStore(paths)
    state = checkpoint.load_newest(paths.checkpoints(), store)
    assert state is not None
    memory.load_state_dict(state["memory"])
    return memory, store


def spans(paths: Paths, name: str = "replay") -> list[tuple[int, int]]:
    """(start, stop) of the chunk files there are."""
    stems = [path.stem.split("-") for path in paths.chunks()]
    return sorted((int(start), int(stop)) for head, start, stop in stems if head == f"x_t0_s0_{name}")


def stamps(paths: Paths) -> dict[str, tuple[int, int]]:
    """Which file a name stands for, and when it was written."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths.chunks()}


def assert_same(left: Replay, right: Replay) -> None:
    """The same state now, the same batches from now on; both go on by three rows."""
    assert_equal(by_content(left.state_dict()), by_content(right.state_dict()))
    for row in range(left.ring.written, left.ring.written + 3):
        ours, theirs = left.sample(), right.sample()
        for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated", "extra"):
            assert_equal(getattr(ours, name), getattr(theirs, name), name)
        for memory in (left, right):
            add(memory, row)
            memory.feedback(ours, ours.reward)


# round trips


@pytest.mark.parametrize("rows", [1, 5, ROWS, ROWS + 1, 2 * ROWS + 5])
@pytest.mark.parametrize("cls", [Replay, PrioritizedReplay])
def test_a_memory_comes_back_from_files_bit_for_bit(paths: Paths, cls: type[Replay], rows: int) -> None:
    memory = filled(rows, cls)
    save(paths, ChunkStore(paths), memory, rows)
    assert_same(resume(paths, cls)[0], memory)


def test_a_memory_saved_again_and_again_and_resumed_comes_back_bit_for_bit(paths: Paths) -> None:
    memory, straight, store = replay(), replay(), ChunkStore(paths)
    stops = (4, 7, 8, 13, 26, 27, 55, 56)  # within the ring, round its end, and past all that was saved
    for i, stop in enumerate(stops):
        add(memory, *range(memory.ring.written, stop))
        save(paths, store, memory, stop)
        if i % 2:
            memory, store = resume(paths)
    add(straight, *range(stops[-1]))
    assert straight.ended > 0
    assert_same(memory, straight)


def test_a_memory_without_rows_writes_no_chunks_and_comes_back(paths: Paths) -> None:
    save(paths, ChunkStore(paths), replay(), 0)
    assert paths.chunks() == []
    memory, _ = resume(paths)
    assert memory.ring.written == 0


def columns(first: int, stop: int) -> dict[str, Array]:
    """Rows of two entries: 10 and 11 for row 1."""
    return {"a": np.repeat(np.arange(first, stop), 2) * 10 + np.tile([0, 1], stop - first)}


def test_rows_are_handed_out_from_any_first_row(paths: Paths) -> None:
    rows = Rows("replay", 2, 7, lambda first: iter([(2, columns(2, 5)), (5, columns(5, 7))]))
    place = ChunkStore(paths).put(rows)
    got = ChunkStore(paths).get("replay", place)
    assert (got.name, got.start, got.stop) == ("replay", 2, 7)

    def handed_out(first: int) -> list[tuple[int, list[int]]]:
        return [(start, part["a"].tolist()) for start, part in got.parts(first)]

    assert handed_out(2) == [(2, [20, 21, 30, 31, 40, 41]), (5, [50, 51, 60, 61])]
    assert handed_out(4) == [(4, [40, 41]), (5, [50, 51, 60, 61])]
    assert handed_out(5) == [(5, [50, 51, 60, 61])]
    assert handed_out(6) == [(6, [60, 61])]
    assert handed_out(7) == []


# each row is written once


@pytest.mark.parametrize("resumed", [False, True])
def test_chunks_on_disk_are_used_again_and_only_new_rows_are_written(paths: Paths, resumed: bool) -> None:
    memory, store = filled(5), ChunkStore(paths)
    save(paths, store, memory, 5)
    assert spans(paths) == [(0, 2), (2, 4), (4, 5)]
    assert spans(paths, "replay_ends") == [(0, 2)]  # rows 1 and 3 ended an episode
    before = stamps(paths)
    if resumed:
        memory, store = resume(paths)
    add(memory, 5, 6, 7)
    save(paths, store, memory, 8)
    assert spans(paths) == [(0, 2), (2, 4), (4, 5), (5, 7), (7, 8)]
    assert spans(paths, "replay_ends") == [(0, 2), (2, 4)]
    assert {name: stamp for name, stamp in stamps(paths).items() if name in before} == before


def test_a_save_without_new_rows_writes_no_chunk(paths: Paths) -> None:
    memory, store = filled(5), ChunkStore(paths)
    save(paths, store, memory, 5)
    before = stamps(paths)
    save(paths, store, memory, 6)
    assert stamps(paths) == before


# what is kept


def test_a_chunk_goes_when_neither_the_checkpoint_nor_its_predecessor_names_it(paths: Paths) -> None:
    memory, store = filled(8), ChunkStore(paths)
    save(paths, store, memory, 8)
    add(memory, 8, 9, 10, 11, 12)
    save(paths, store, memory, 13)  # holds rows 3 to 12: it names (2, 4) still, its predecessor (0, 2) too
    assert spans(paths) == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 11), (11, 13)]  # a piece ends with the ring
    add(memory, 13)
    save(paths, store, memory, 14)  # holds rows 4 to 13; frame 13 names (2, 4)
    assert spans(paths) == [(2, 4), (4, 6), (6, 8), (8, 10), (10, 11), (11, 13), (13, 14)]
    add(memory, *range(14, 26))
    save(paths, store, memory, 26)  # holds rows 16 to 25
    add(memory, 26)
    save(paths, store, memory, 27)
    assert spans(paths)[0] == (16, 18)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_second_save_at_the_same_frame_leaves_the_predecessor_whole(paths: Paths, resumed: bool) -> None:
    memory, store = filled(8), ChunkStore(paths)
    save(paths, store, memory, 8)
    add(memory, *range(8, 30))
    save(paths, store, memory, 30)
    if resumed:
        memory, store = resume(paths)
    save(paths, store, memory, 30)
    paths.checkpoint(30).unlink()
    assert_same(resume(paths)[0], filled(8))


def test_orphans_of_this_session_go_and_nothing_else(paths: Paths) -> None:
    other = paths.for_session(1)
    orphans = [paths.chunk("replay", 90, 95), paths.chunk("replay_ends", 0, 9), paths.chunk("gone", 1, 2)]
    others = [other.chunk("replay", 0, 2), paths.best, other.best, other.checkpoint(5), paths.models / "a.safetensors"]
    others.append(paths.for_session(10).chunk("replay", 0, 2))
    for path in (*orphans, *others):
        path.write_bytes(b"")
    save(paths, ChunkStore(paths), filled(2), 2)
    assert sorted(paths.models.iterdir()) == sorted(
        [*others, paths.checkpoint(2), paths.chunk("replay", 0, 2), paths.chunk("replay_ends", 0, 1)]
    )


def test_nothing_is_deleted_while_it_is_unclear_what_a_kept_checkpoint_names(paths: Paths) -> None:
    memory, store = filled(8), ChunkStore(paths)
    save(paths, store, memory, 8)
    paths.checkpoint(8).write_bytes(b"damaged")
    add(memory, *range(8, 30))
    save(paths, store, memory, 30)
    assert spans(paths)[0] == (0, 2)
    save(paths, store, memory, 31)
    assert spans(paths)[0] == (20, 22)


# damage


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])


def other_rows(path: Path) -> None:
    """A whole chunk with other content."""
    checkpoint.save(path, {"obs": np.zeros((3, 4), np.float32)})


DAMAGE: dict[str, Callable[[Path], None]] = {"missing": Path.unlink, "a flipped bit": flip, "other rows": other_rows}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("name", ["replay-7-8", "replay_ends-2-4"])
def test_a_checkpoint_with_a_damaged_chunk_gives_way_to_its_predecessor(
    paths: Paths, warnings: list[str], damage: Callable[[Path], None], name: str
) -> None:
    memory, store = filled(5), ChunkStore(paths)
    save(paths, store, memory, 5)
    add(memory, 5, 6, 7)
    save(paths, store, memory, 8)
    damage(paths.models / f"x_t0_s0_{name}.safetensors")
    got, store = resume(paths)
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{paths.checkpoint(8)}: {paths.models}/x_t0_s0_{name}.safetensors: ")
    assert warnings[0].endswith("Using the checkpoint before it.")
    add(got, 5, 6, 7)
    save(paths, store, got, 8)  # the same rows, written anew
    assert_same(resume(paths)[0], filled(8))
    assert len(warnings) == 1


def test_a_chunk_that_both_checkpoints_need_is_named_when_it_is_lost(paths: Paths) -> None:
    memory, store = filled(5), ChunkStore(paths)
    save(paths, store, memory, 5)
    save(paths, store, memory, 6)
    paths.chunk("replay", 0, 2).unlink()
    with pytest.raises(CheckpointError, match=r"x_t0_s0_replay-0-2\.safetensors: .* No checkpoint can be read"):
        resume(paths)


# kills


def test_a_session_killed_between_chunk_and_checkpoint_goes_on_from_before(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, store = filled(5), ChunkStore(paths)
    save(paths, store, memory, 5)
    add(memory, 5, 6)

    def killed(path: Path, content: bytes) -> None:
        if "_ckpt-" in path.name:
            raise KeyboardInterrupt
        write_bytes(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("slm_lab.experiment.checkpoint.write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            save(paths, store, memory, 7)
    assert spans(paths)[-1] == (5, 7)  # an orphan
    memory, store = resume(paths)
    assert memory.ring.written == 5
    add(memory, 5)
    save(paths, store, memory, 6)
    assert spans(paths)[-1] == (5, 6)
    assert_same(resume(paths)[0], filled(6))


def die_at(call: int) -> None:
    """End this process without a word at its n-th change to the disk."""
    left = [call]

    def counted(name: str) -> Any:
        real = getattr(os, name)

        def counting(*arguments: Any, **options: Any) -> Any:
            if not left[0]:
                os._exit(9)
            left[0] -= 1
            return real(*arguments, **options)

        return counting

    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, counted(name))


def test_a_kill_at_any_moment_of_a_save_leaves_a_state_to_go_on_from(paths: Paths) -> None:
    moments, seen = 0, set[int]()
    while True:
        for path in paths.models.iterdir():
            path.unlink()
        memory, store = filled(4), ChunkStore(paths)
        for stop in (4, 20):
            add(memory, *range(memory.ring.written, stop))
            save(paths, store, memory, stop)
        child = os.fork()
        if child == 0:
            try:
                die_at(moments)
                add(memory, *range(20, 25))
                save(paths, store, memory, 25)
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9)
        memory, store = resume(paths)
        seen.add(memory.ring.written)
        add(memory, *range(memory.ring.written, 30))
        save(paths, store, memory, 30)
        assert_same(resume(paths)[0], filled(30))
        for path in paths.leftovers():
            path.unlink()
        save(paths, store, memory, 31)
        assert len(paths.chunks()) == sum(map(len, store.known.values()))
        if code == 0:
            break
        moments += 1
    # rows (20, 22), (22, 24), (24, 25), ends (10, 12) and the checkpoint: content, rename and folder each;
    # then the oldest checkpoint goes, with rows (0, 2), (2, 4) and ends (0, 2)
    assert moments == 5 * 3 + 1 + 3
    assert seen == {20, 25}


# sessions


SPEC = {
    "name": "tiny",
    "agent": {
        "name": "DQN",
        "algorithm": {
            "name": "DQN",
            "action_pdtype": "Argmax",
            "action_policy": "epsilon_greedy",
            "explore_var_spec": {"name": "no_decay", "start_val": 0.3},
            "gamma": 0.97,
            "training_frequency": 3,
            "training_start_step": 12,
        },
        "memory": {"name": "Replay", "batch_size": 8, "max_size": 60},
        "net": {
            "type": "MLPNet",
            "hid_layers": [8],
            "hid_layers_activation": "relu",
            "optim_spec": {"name": "Adam", "lr": 3e-3},
            "update_type": "polyak",
            "polyak_coef": 0.1,
        },
    },
    "env": {"name": "CartPole-v1", "num_envs": 3, "max_frame": 300, "max_t": 50, "vectorization": "sync"},
    "meta": {"max_session": 1, "max_trial": 1, "log_frequency": 30, "eval_frequency": 30},
}


def test_a_session_resumes_with_its_memory_and_keeps_none_of_it_with_the_best_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slm_lab.experiment.session.session_graphs", lambda *_: None)
    spec, rng = from_mapping(SPEC, "tiny").spec, random.Random(0)
    straight = session(spec, (3, 0, 0))
    straight.run()
    stops = [*sorted(3 * rng.randrange(1, 100) for _ in range(5)), None]
    for i, stop in enumerate(stops):
        one = session(spec, (3 + i, 0, 0), tmp_path, every=0)
        assert one.resume() == (i > 0)
        one.run(stop)
        one.close()
    assert_equal(state_of(one), state_of(straight))
    assert checkpoint.load(files_of(one).best).keys() == {"nets", "normalizer"}
    assert files_of(one).chunks()
