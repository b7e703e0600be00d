"""The table of speeds: ours, Stable-Baselines3 and SBX side by side.

Run: python -m perf [--rows 1,4] [--rounds 3]   (writes perf/results/row_*.json and docs/PERFORMANCE.md)
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import ExitStack

from perf.child import Child
from perf.command import train
from perf.page import write_page
from perf.results import CommandResult, RowResult, facts, write
from perf.rows import ROWS, TURNS, Row
from perf.table import command_line, table

COMMAND = 7  # the row that times a whole command
SESSIONS, FRAMES, MOST = 4, 200_000, 60.0


def measure(row: Row, rounds: int, frames: int) -> RowResult:
    """Rounds in which the contestants of a row take turns, after a warm-up of each."""
    turn = -(-frames // (TURNS * row.unit)) * row.unit
    with ExitStack() as stack:
        children = {who.name: stack.enter_context(Child(row.task, who)) for who in row.contestants}
        for child in children.values():
            child.run(row.warm_up)
        laps = [
            [{name: child.run(turn) for name, child in children.items()} for _ in range(TURNS)] for _ in range(rounds)
        ]
    # turns have equal frames: the speed of a round is the harmonic mean of theirs
    speeds = {
        name: [statistics.harmonic_mean([lap[name].speed for lap in turns]) for turns in laps] for name in children
    }
    memory = {name: laps[-1][-1][name].memory_mb for name in children}
    frames = TURNS * turn
    return RowResult(row.number, row.title, row.settings, frames, row.threads, speeds, memory, row.asked, facts())


def measure_command(frames: int) -> CommandResult:
    """The wall time of `train` from the command to its result, the second time it is given."""
    sets = [f"max_session={SESSIONS}", f"max_frame={frames}"]
    train(sets)
    seconds = train(sets).seconds
    settings = f"{SESSIONS} sessions of {frames:,} frames, from command to result, second run on the machine"
    return CommandResult(COMMAND, "`slm-lab run` of ppo_cartpole in mode train", settings, seconds, MOST, facts())


def main() -> None:
    known = [*(row.number for row in ROWS), COMMAND]
    parser = argparse.ArgumentParser(prog="python -m perf", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default=",".join(map(str, known)), help="numbers of rows, e.g. 1,4")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each row")
    parser.add_argument("--frames", type=int, help="of a round, in place of each row's own; then nothing is written")
    arguments = parser.parse_args()
    asked = arguments.rows.split(",")
    unknown = [number for number in asked if number not in map(str, known)]
    if unknown:
        parser.error(f"--rows: unknown {', '.join(unknown)}; known: {', '.join(map(str, known))}")
    if arguments.rounds < 1:
        parser.error(f"--rounds: got {arguments.rounds}; at least 1")
    for row in ROWS:
        if str(row.number) in asked:
            result = measure(row, arguments.rounds, arguments.frames or row.frames)
            print(table([result]), flush=True)
            if arguments.frames is None:
                write(result)
    if str(COMMAND) in asked:
        timed = measure_command(arguments.frames or FRAMES)
        print(command_line(timed), flush=True)
        if arguments.frames is None:
            write(timed)
    if arguments.frames is None:
        print(*write_page(), sep="\n")


if __name__ == "__main__":
    main()
