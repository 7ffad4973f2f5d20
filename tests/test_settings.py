from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import Field, Tag

from allears.errors import SettingsError
from allears.settings import Settings, build, flat, kind_or, origins, overridden, read, shipped

if TYPE_CHECKING:
    from pathlib import Path


class Leaf(Settings):
    steps: Annotated[int, Field(ge=1)] = 10
    rate: float = 0.5
    kind: Literal["warm", "cold"] = "warm"
    name: str | None = None


class Source(Settings):
    dataset: str
    weight: float = 1.0


class Steam(Settings):
    kind: Literal["steam"] = "steam"
    pressure: float = 1.0


class Diesel(Settings):
    kind: Literal["diesel"] = "diesel"
    cylinders: int = 4
    pump: Leaf = Leaf()


Engine = Annotated[Annotated[Steam, Tag("steam")] | Annotated[Diesel, Tag("diesel")], kind_or("steam")]


class Tree(Settings):
    leaf: Leaf = Leaf()
    engine: Engine = Steam()
    engines: tuple[Engine, ...] = ()
    maybe: Leaf | None = None
    listed: tuple[Source, ...] = ()
    named: dict[str, Source] = {}
    speeds: tuple[float, ...] = Field(default=(), examples=[[0.9, 1.0]])
    betas: tuple[float, float] = (0.9, 0.98)


def sentence(values: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        build(Tree, values, "x.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"leef": {}}, "x.yaml: there is no setting 'leef'; did you mean 'leaf'?"),
        ({"leaf": {"step": 1}}, "x.yaml: there is no setting 'leaf.step'; did you mean 'leaf.steps'?"),
        ({"maybe": {"stepz": 1}}, "x.yaml: there is no setting 'maybe.stepz'; did you mean 'maybe.steps'?"),
        (
            {"listed": [{"dataset": "a"}, {"dataset": "b", "wight": 2}]},
            "x.yaml: there is no setting 'listed.1.wight'; did you mean 'listed.1.weight'?",
        ),
        (
            {"named": {"dev": {"dataset": "a", "wait": 2}}},
            "x.yaml: there is no setting 'named.dev.wait'; did you mean 'named.dev.weight'?",
        ),
        ({"leaf": {"zzz": 1}}, "x.yaml: there is no setting 'leaf.zzz'; known are steps, rate, kind, name."),
        ({"listed": [{}]}, "x.yaml: listed.0.dataset must be given."),
        ({"listed": 0.9}, "x.yaml: listed is 0.9: must be a list."),
        ({"speeds": 1.1}, "x.yaml: speeds is 1.1: must be a list, such as [0.9, 1.0]."),
        ({"betas": 0.9}, "x.yaml: betas is 0.9: must be a list, such as [0.9, 0.98]."),
        (
            {"engine": {"kind": "diesel", "cylinder": 6}},
            "x.yaml: there is no setting 'engine.cylinder'; did you mean 'engine.cylinders'?",
        ),
        (
            {"engine": {"kind": "steam", "cylinders": 6}},
            "x.yaml: there is no setting 'engine.cylinders'; known are kind, pressure.",
        ),
        (
            {"engine": {"kind": "diesel", "pump": {"stepz": 6}}},
            "x.yaml: there is no setting 'engine.pump.stepz'; did you mean 'engine.pump.steps'?",
        ),
        (
            {"engines": [{"kind": "steam", "presure": 6}]},
            "x.yaml: there is no setting 'engines.0.presure'; did you mean 'engines.0.pressure'?",
        ),
    ],
)
def test_an_unknown_or_missing_key_is_named_with_the_nearest_known_one(values: dict[str, Any], expected: str) -> None:
    assert sentence(values) == expected


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        ({"steps": "many"}, r"^x.yaml: leaf\.steps is 'many': must be a whole number\.$"),
        ({"steps": 1.5}, r"^x.yaml: leaf\.steps is 1\.5: must be a whole number\.$"),
        ({"steps": 0}, r"^x.yaml: leaf\.steps is 0: input should be greater than or equal to 1\.$"),
        ({"rate": float("nan")}, r"^x.yaml: leaf\.rate is nan: input should be a finite number\.$"),
        ({"rate": None}, r"^x.yaml: leaf\.rate is None: .*number.*\.$"),
        ({"kind": "hot"}, r"^x.yaml: leaf\.kind is 'hot': input should be 'warm' or 'cold'\.$"),
        ({"name": 3}, r"^x.yaml: leaf\.name is 3: must be text\.$"),
        (3, r"^x.yaml: leaf is 3: .*\.$"),
    ],
)
def test_a_wrong_value_is_named_with_the_rule(leaf: object, expected: str) -> None:
    assert re.search(expected, sentence({"leaf": leaf}))


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({"kind": "petrol"}, "x.yaml: engine.kind is 'petrol': must be one of 'steam', 'diesel'."),
        ({"kind": "diesel", "cylinders": "six"}, "x.yaml: engine.cylinders is 'six': must be a whole number"),
        ({"kind": "diesel", "pump": {"steps": 0}}, "x.yaml: engine.pump.steps is 0: input should be greater than"),
        ({"kind": ["steam"]}, "x.yaml: engine.kind is \"['steam']\": must be one of 'steam', 'diesel'."),
        (None, "x.yaml: engine is None: must be a group of settings"),
        (3, "x.yaml: engine is 3: must be a group of settings"),
        (True, "x.yaml: engine is True: must not be true or false."),
    ],
)
def test_one_of_several_kinds_is_named_without_its_kind(engine: object, expected: str) -> None:
    assert sentence({"engine": engine}).startswith(expected)


def test_a_kind_may_be_left_out() -> None:
    assert build(Tree, {"engine": {"pressure": 2}}, "x").engine == Steam(pressure=2)
    assert build(Tree, {"engine": {"kind": "diesel"}}, "x").engine == Diesel()
    assert sentence({"engine": {"cylinders": 2}}).endswith("'engine.cylinders'; known are kind, pressure.")


def test_every_wrong_key_gets_a_sentence() -> None:
    assert sentence({"leaf": {"steps": 0, "rat": 1}}).count(".") >= 3
    assert "leaf.steps" in sentence({"leaf": {"steps": 0, "rat": 1}})
    assert "'leaf.rate'" in sentence({"leaf": {"steps": 0, "rat": 1}})


def test_settings_cannot_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        build(Leaf, {}, "x").steps = 3


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "x:\n  a: 1\n  a: 1\n", "x: [{a: 1, a: 2}]\n"])
def test_a_key_that_stands_twice_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"twice\.yaml is not valid YAML: the key 'a' stands twice.*line"):
        read(str(path))


def test_shared_parts_of_a_config_may_be_named_and_merged(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text("a: {b: &x {c: 1, d: 2}}\ne: &y {<<: *x, g: 3}\nf: {<<: *y, c: 4}\n")
    expected = {"a": {"b": {"c": 1, "d": 2}}, "e": {"c": 1, "d": 2, "g": 3}, "f": {"c": 4, "d": 2, "g": 3}}
    assert read(str(path)) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"- 1\n", "must be a mapping of settings, not list"),
        (b"plain", "must be a mapping of settings, not str"),
        (b"a: [1\n", "is not valid YAML"),
        (b"[1, 2]: 3\n", "is not valid YAML"),
        (b"a: !!python/object:os.system x\n", "is not valid YAML"),
        (b"a: \xff\n", "cannot be read"),
    ],
)
def test_what_is_no_mapping_is_an_error(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(data)
    with pytest.raises(SettingsError, match=expected) as caught:
        read(str(path))
    assert "c.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_that_are_no_words_are_an_error() -> None:
    assert re.search(r"x\.yaml: .*2: keys should be strings", sentence({2: 3}))  # type: ignore[dict-item]
    assert re.search(r"x\.yaml: .*True: keys should be strings", sentence({"leaf": {True: 3}}))


def test_an_empty_file_is_a_config_of_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert build(Tree, read(str(tmp_path / "empty.yaml")), "empty.yaml") == Tree()


def test_a_missing_config_names_the_shipped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "demo" in shipped()
    with pytest.raises(SettingsError, match="did you mean 'demo'"):
        read("dem")
    with pytest.raises(SettingsError, match=f"shipped are {', '.join(shipped())}"):
        read("zzzzzz")
    with pytest.raises(SettingsError, match=r"'other\.yaml' does not exist"):
        read("other.yaml")
    with pytest.raises(SettingsError, match="cannot be read"):
        read(str(tmp_path))


def test_a_shipped_config_is_read_by_its_name() -> None:
    for name in shipped():
        assert isinstance(read(name), dict)


def test_overrides_go_to_their_place_and_leave_the_rest() -> None:
    values: dict[str, Any] = {"leaf": {"steps": 3, "rate": 0.1}}
    changed = overridden(values, ["leaf.steps=5", "maybe.kind=cold", "leaf.name=", "listed=[{dataset: a=b.c}]"])
    assert changed == {
        "leaf": {"steps": 5, "rate": 0.1, "name": ""},
        "maybe": {"kind": "cold"},
        "listed": [{"dataset": "a=b.c"}],
    }
    assert values == {"leaf": {"steps": 3, "rate": 0.1}}
    assert overridden({}, ["a=1", "a=2"]) == {"a": 2}
    assert overridden({"a": {"b": 1}}, ["a=null"]) == {"a": None}


@pytest.mark.parametrize("text", ["2e-3", "2.0e-3", "0.002", ".002", "2E-3"])
def test_a_number_may_be_written_with_an_exponent(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(f"leaf: {{rate: {text}}}\n")
    for values in (overridden({}, [f"leaf.rate={text}"]), read(str(tmp_path / "c.yaml"))):
        assert build(Tree, values, "x").leaf.rate == 0.002


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("leaf.steps", "override 'leaf.steps' must have the form key=value"),
        ("=3", "override '=3' must have the form key=value"),
        ("leaf.steps.deep=3", "override 'leaf.steps.deep=3': 'steps' is not a group of settings"),
        ("listed.weight=3", "override 'listed.weight=3': 'listed' is not a group of settings"),
        ("leaf.steps=[1", "override 'leaf.steps=[1': '[1' is not valid YAML"),
        ("leaf={a: 1, a: 2}", "is not valid YAML"),
    ],
)
def test_an_override_that_fits_nowhere_is_an_error(override: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(expected)):
        overridden({"leaf": {"steps": 3}, "listed": []}, [override])


def test_each_value_is_shown_with_where_it_comes_from() -> None:
    given = {"leaf": {"steps": 3, "rate": 0.1}}
    overrides = ["leaf.rate=2e-3", "maybe={steps: 4}"]
    settings = build(Tree, overridden(given, overrides), "x.yaml")
    rows = {name: (value, origin) for name, value, origin in origins(settings, given, overrides, "x.yaml")}
    assert rows["leaf.steps"] == (3, "x.yaml")
    assert rows["leaf.rate"] == (0.002, "command line")
    assert rows["leaf.kind"] == ("warm", "default")
    assert rows["maybe.steps"] == (4, "command line")
    assert rows["listed"] == ([], "default")


def test_a_name_given_for_a_whole_group_is_where_its_values_come_from() -> None:
    settings = build(Tree, {"leaf": {"steps": 3}}, "x.yaml")
    rows = {name: origin for name, _, origin in origins(settings, {"leaf": "preset"}, [], "x.yaml")}
    assert rows["leaf.steps"] == rows["leaf.rate"] == "x.yaml"


def test_nested_names_are_joined_by_dots() -> None:
    assert flat({"a": {"b": 1, "c": {}}, "d": [1]}) == [("a.b", 1), ("a.c", {}), ("d", [1])]
