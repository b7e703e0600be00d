"""Processes that leave the user's script alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slm_lab.lib.process import without_main

SCRIPT = """
import multiprocessing, os, sys
from slm_lab.lib.process import without_main
print("script")
sys.stdout.flush()
process = multiprocessing.get_context("{method}").Process(target=os._exit, args=(7,))
with without_main():
    process.start()
process.join()
print(process.exitcode, sys.modules["__main__"].process is process)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_without_a_guard_is_not_run_again_by_our_processes(method: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(method=method))
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=60)
    assert done.stdout == "script\n7 True\n", done.stderr


def test_the_main_module_is_back_after_an_error() -> None:
    main, seen = sys.modules["__main__"], list[object]()

    def fail() -> None:
        with without_main():
            seen.append(sys.modules["__main__"])
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert seen[0] is not main
    assert sys.modules["__main__"] is main
