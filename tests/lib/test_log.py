import io
import os
import re

import pytest
from loguru import logger
from rich.console import Console

from slm_lab.lib.errors import LabError
from slm_lab.lib.log import configure

PREFIX = rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d \| (\w+) \| PID:{os.getpid()} \| test_log:\w+ \| "


@pytest.fixture(autouse=True)
def _no_sinks_left():
    yield
    logger.remove()


def test_lines_on_stderr_have_time_level_process_and_place(capsys):
    configure("INFO")
    logger.info("trial_metrics: frame:{}", 1)
    written = capsys.readouterr()
    assert re.fullmatch(PREFIX + "trial_metrics: frame:1\n", written.err)
    assert written.out == ""


def test_lines_below_the_level_are_dropped(capsys):
    configure("warning")
    logger.info("quiet")
    logger.warning("loud")
    assert [line.split(" | ")[-1] for line in capsys.readouterr().err.splitlines()] == ["loud"]


def test_a_file_gets_the_same_lines_and_its_folder(tmp_path, capsys):
    configure("INFO", tmp_path / "log" / "x.log")
    logger.info("hello")
    logger.remove()
    assert (tmp_path / "log" / "x.log").read_text() == capsys.readouterr().err


def test_a_second_run_appends_to_the_file(tmp_path):
    for message in ("first", "second"):
        configure("INFO", tmp_path / "x.log")
        logger.info(message)
    logger.remove()
    assert re.findall(r"\w+$", (tmp_path / "x.log").read_text(), re.MULTILINE) == ["first", "second"]


def test_configuring_again_replaces_the_sinks(tmp_path, capsys):
    configure("INFO", tmp_path / "x.log")
    configure("INFO")
    logger.info("once")
    assert capsys.readouterr().err.count("once") == 1
    assert (tmp_path / "x.log").read_text() == ""


def test_a_console_takes_the_place_of_stderr_and_reads_no_markup(capsys):
    console = Console(file=io.StringIO(), width=20)
    configure("INFO", console=console)
    logger.info("[red]x[/red] :smile: " + "y" * 40)
    assert re.fullmatch(PREFIX + re.escape("[red]x[/red] :smile: ") + "y{40}\n", console.file.getvalue())
    assert capsys.readouterr().err == ""


def test_an_unknown_level_says_which_there_are_and_keeps_the_sinks(capsys):
    configure("INFO")
    with pytest.raises(LabError, match=r"'debgu'. Did you mean 'DEBUG'\? Known: TRACE, DEBUG, INFO, SUCCESS, WARNING"):
        configure("debgu")
    logger.info("still here")
    assert "still here" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_is_a_one_line_error(tmp_path):
    with pytest.raises(LabError, match="cannot write this log"):
        configure("INFO", tmp_path)
