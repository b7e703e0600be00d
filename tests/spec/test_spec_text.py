"""Reading spec text: numbers, words, placeholders, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from slm_lab.lib.errors import LabError
from slm_lab.spec.text import parse_json, parse_yaml, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 0.0003),
        ("1e7", 1e7),
        ("10e6", 1e7),
        ("4e+6", 4e6),
        ("1.0e5", 1e5),
        ("1.0e-3", 0.001),
        ("-2.5E3", -2500.0),
        ("+1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("42", 42),
        ("-7", -7),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
    ],
)
def test_yaml_numbers_are_those_of_yaml_1_2(text: str, value: float) -> None:
    got = parse_yaml(f"x: {text}", "f")["x"]
    assert got == value
    assert type(got) is type(value)


def test_any_way_to_write_a_number_in_yaml_gives_the_same_number() -> None:
    rng = random.Random(0)
    for _ in range(300):
        digits, exponent = rng.randint(0, 9999), rng.randint(-20, 20)
        fraction = rng.choice(["", ".", f".{rng.randint(0, 99)}"])
        power = rng.choice([f"e{exponent}", f"E{exponent}", f"e{exponent:+d}"])
        text = f"{rng.choice(['', '-', '+'])}{digits}{fraction}{power}"
        assert parse_yaml(f"[{text}]", "f") == [float(text)], text


@pytest.mark.parametrize(
    "text", ["on", "off", "yes", "no", "y", "n", "On", "NO", "2020-01-01", "1:30", "1e", "e5", "="]
)
def test_words_that_only_look_like_something_stay_text_in_yaml(text: str) -> None:
    assert parse_yaml(f"x: {text}", "f") == {"x": text}


def test_quoted_numbers_stay_text_in_yaml() -> None:
    assert parse_yaml("x: '1e3'", "f") == {"x": "1e3"}


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("null", None), ("~", None), ("", None)])
def test_booleans_and_null_in_yaml(text: str, value: object) -> None:
    assert parse_yaml(f"x: {text}", "f")["x"] is value


def test_yaml_anchors_aliases_and_merge_keys() -> None:
    text = """
    _a: &a {lr: 1e-3, gamma: 0.9}
    _b: &b {gamma: 0.5, lam: 0.7}
    one: *a
    two: {<<: *a, gamma: 0.99}
    three: {<<: [*a, *b], lr: 1}
    """
    entries = parse_yaml(text, "f")
    assert entries["one"] == {"lr": 0.001, "gamma": 0.9}
    assert entries["two"] == {"lr": 0.001, "gamma": 0.99}
    assert entries["three"] == {"lr": 1, "gamma": 0.9, "lam": 0.7}  # the first of a list wins over the second


def test_a_merged_anchor_that_merges_itself_is_no_duplicate_key() -> None:
    text = "_a: &a {x: 1}\n_b: &b {<<: *a, x: 2}\nc: {<<: *b, x: 3}\n"
    assert parse_yaml(text, "f") == {"_a": {"x": 1}, "_b": {"x": 2}, "c": {"x": 3}}


def test_bare_placeholders_are_read_as_text_in_both_formats() -> None:
    value = {"a": "${x}", "b": ["${x}", "run_${y}_1"]}
    assert parse_json('{"a": ${x}, "b": [${x}, "run_${y}_1"]}', "f") == value
    assert parse_yaml("a: ${x}\nb: [${x}, run_${y}_1]", "f") == value
    assert parse_yaml("{a: ${x}, b: ['${x}', \"run_${y}_1\"]}", "f") == value


def test_a_placeholder_in_a_json_string_with_escaped_quotes_is_left_in_it() -> None:
    assert parse_json(r'{"a": "say \"${x}\" \\", "b": ${x}}', "f") == {"a": 'say "${x}" \\', "b": "${x}"}


def test_malformed_json_names_file_line_column_and_reason() -> None:
    with pytest.raises(LabError, match=r"^f\.json: line 2, column 9: Expecting ',' delimiter\.$"):
        parse_json('{"a": 1,\n "b": 2 "c": 3}', "f.json")


def test_a_bare_placeholder_before_an_error_does_not_shift_its_column() -> None:
    with pytest.raises(LabError, match="line 1, column 12:"):
        parse_json('{"a": ${x} 1}', "f")


def test_malformed_yaml_names_file_line_column_and_reason() -> None:
    with pytest.raises(LabError, match=r"^f\.yaml: line 2, column 5: mapping values are not allowed"):
        parse_yaml("a: 1\nb: c: d", "f.yaml")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: \x01", "line 1, column 4: control characters are not allowed"),
        ("a: 1\n---\nb: 2", "line 2, column 1: .*single document"),
        ("a: *unknown", "line 1, column 4: .*undefined alias"),
        ("a: !!python/object:os.system x", "line 1, column 4: could not determine a constructor"),
        ("a: !!timestamp 2020-01-01", "could not determine a constructor"),
        ("a: !!int many", "line 1, column 4: many is not a finite number"),
        ("a: !!bool perhaps", "perhaps is not a boolean"),
        ("a: .inf", "line 1, column 4: .inf is not a finite number"),
        ("a: .nan", ".nan is not a finite number"),
        ("a: 1e999", "1e999 is not a finite number"),
    ],
)
def test_yaml_that_is_refused_says_where_and_why(text: str, reason: str) -> None:
    with pytest.raises(LabError, match=reason):
        parse_yaml(text, "f")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_json_numbers_that_are_not_finite_are_refused(number: str) -> None:
    with pytest.raises(LabError, match=f"f: {number} is not a finite number"):
        parse_json(f'{{"a": {number}}}', "f")


def test_an_integer_of_thousands_of_digits_is_one_message() -> None:
    with pytest.raises(LabError, match="digits"):
        parse_json("9" * 5000, "f")


def test_duplicate_keys_are_refused_by_name() -> None:
    with pytest.raises(LabError, match="f: duplicate key 'gamma' in the mapping of gamma, lam"):
        parse_json('{"a": {"gamma": 1, "lam": 2, "gamma": 1}}', "f")
    with pytest.raises(LabError, match="f: line 3, column 4: duplicate key 'gamma'"):
        parse_yaml("a:\n   gamma: 1\n   gamma: 1", "f")
    with pytest.raises(LabError, match="f: line 2, column 13: duplicate key '<<'"):
        parse_yaml("a: &a {x: 1}\nb: {<<: *a, <<: *a}", "f")


@pytest.mark.parametrize(("name", "text"), [("a.json", "[1, 2]"), ("a.yaml", "- 1"), ("a.yml", ""), ("a.json", '"x"')])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(LabError, match=r"expected a mapping of spec names to specs, got a"):
        read(tmp_path / name)


def test_the_format_follows_the_extension(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.YML"):
        (tmp_path / name).write_text("x: 3e-4")
        assert read(tmp_path / name) == {"x": 0.0003}
    for name in ("c.json", "d.spec"):
        (tmp_path / name).write_text('{"x": 3e-4}')
        assert read(tmp_path / name) == {"x": 0.0003}
    (tmp_path / "e.json").write_text("x: 1")
    with pytest.raises(LabError, match="line 1, column 1"):
        read(tmp_path / "e.json")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"x": 1}')
    assert read(tmp_path / "a.json") == {"x": 1}


def test_files_that_cannot_be_read_are_one_message(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"x": "\xe9"}')
    with pytest.raises(LabError, match=r"latin\.json: not UTF-8 text"):
        read(tmp_path / "latin.json")
    with pytest.raises(LabError, match=r"none\.json: cannot be read: No such file"):
        read(tmp_path / "none.json")


@pytest.mark.parametrize(("name", "text"), [("a.json", "[" * 99999), ("a.yaml", "a: &a [*a]"), ("a.yaml", "[" * 9999)])
def test_endless_nesting_is_one_message(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(LabError, match=r"a\.(json|yaml): "):
        read(tmp_path / name)
