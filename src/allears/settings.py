"""Settings: frozen typed classes, each beside the class it configures, read from YAML and overridden with dots.

What is derived (vocabulary size, steps per epoch) is an argument, never a setting. An unknown key is an error that
names the nearest known one.
"""

from __future__ import annotations

import difflib
import types
import typing
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, ValidationError, ValidationInfo, field_validator

from allears.errors import SettingsError

if typing.TYPE_CHECKING:
    from pydantic.fields import FieldInfo

CONFIGS = Path(__file__).parent / "configs"


class Settings(BaseModel):
    """Base of all settings classes: frozen, extra keys forbidden, numbers finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """``true`` is no 1."""
        kind = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and bool not in _alternatives(kind):
            raise ValueError("must not be true or false")
        return value


S = TypeVar("S", bound=Settings)


_RULES = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "must be a group of settings"),
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
"""Rules in plain words, by pydantic's names of what is wrong."""


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key that stands twice is an error instead of a silent loss."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return node


def kind_or(default: str) -> Discriminator:
    """Chooses among tagged settings classes by ``kind``; what does not say one is of the ``default`` kind."""

    def kind(value: Any) -> str:
        return str(value.get("kind", default) if isinstance(value, dict) else getattr(value, "kind", default))

    return Discriminator(kind)


def shipped() -> list[str]:
    """Names of the configs that come with the package."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def read(config: str) -> dict[str, Any]:
    """The mapping in a YAML file, or in the shipped config of that name.

    Raises:
        SettingsError: there is no such file or name, or it is not a YAML mapping.
    """
    path = Path(config)
    if not path.suffix and not path.exists():
        path = CONFIGS / f"{config}.yaml"
        if not path.exists():
            near = difflib.get_close_matches(config, shipped(), 1, cutoff=0.4)
            remedy = f"did you mean {near[0]!r}?" if near else f"shipped are {', '.join(shipped())}."
            raise SettingsError(f"config {config!r} is neither a file nor the name of a shipped config; {remedy}")
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 (_Loader is a SafeLoader)
    except FileNotFoundError:
        raise SettingsError(f"config {config!r} does not exist.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"config {config!r} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{config} is not valid YAML: {' '.join(str(error).split())}.") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(f"{config} must be a mapping of settings, not {type(value).__name__}.")
    return value


def overridden(values: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """``values`` with each ``a.b=value`` put in its place; values are read as YAML.

    Raises:
        SettingsError: an override has no ``=``, or goes through something that is not a mapping.
    """
    result: dict[str, Any] = _copied(values)
    for override in overrides:
        name, sign, text = override.partition("=")
        if not sign or not name:
            raise SettingsError(f"override {override!r} must have the form key=value, such as training.steps=100.")
        try:
            value = yaml.load(text, _Loader) if text else ""  # noqa: S506 (_Loader is a SafeLoader)
        except yaml.YAMLError as error:
            raise SettingsError(f"override {override!r}: {text!r} is not valid YAML.") from error
        place = result
        *parents, last = name.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise SettingsError(f"override {override!r}: {parent!r} is not a group of settings.")
        place[last] = value
    return result


def build(kind: type[S], values: dict[str, Any], source: str) -> S:
    """Settings of class ``kind`` from plain values.

    Raises:
        SettingsError: one sentence for each key that is unknown, of the wrong type or out of range.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        sentences = [_sentence(kind, dict(problem)) for problem in error.errors()]
        raise SettingsError(f"{source}: " + " ".join(sentences)) from error


def origins(kind: Settings, given: dict[str, Any], overrides: list[str], source: str) -> list[tuple[str, Any, str]]:
    """(dotted name, value, where it comes from) for each setting, in the order of the classes."""
    by_hand = {override.partition("=")[0] for override in overrides}
    rows: list[tuple[str, Any, str]] = []
    for name, value in flat(kind.model_dump(mode="json")):
        parts = name.split(".")
        prefixes = {".".join(parts[: n + 1]) for n in range(len(parts))}
        if prefixes & by_hand or any(given_name.startswith(f"{name}.") for given_name in by_hand):
            origin = "command line"
        else:
            origin = source if _has(given, parts) else "default"
        rows.append((name, value, origin))
    return rows


def flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested mappings as (dotted name, value) pairs."""
    rows: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            rows += flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", value))
    return rows


def _copied(value: Any) -> Any:
    return {name: _copied(child) for name, child in value.items()} if isinstance(value, dict) else value


def _has(values: Any, parts: list[str]) -> bool:
    for part in parts:
        if not isinstance(values, dict):
            return True  # a name that stands for the whole group
        if part not in values:
            return False
        values = values[part]
    return True


def _sentence(kind: type[BaseModel], problem: dict[str, Any]) -> str:
    location = [part for part in problem["loc"] if not (isinstance(part, str) and part.startswith("function-"))]
    path, _, fields = _place(kind, location)
    name = ".".join(map(str, path)) or "the config"
    if problem["type"] == "extra_forbidden":
        _, known, _ = _place(kind, location[:-1])
        near = difflib.get_close_matches(str(path[-1]), known, 1, cutoff=0.5)
        whole = ".".join(map(str, [*path[:-1], *near]))
        remedy = f"did you mean {whole!r}?" if near else f"known are {', '.join(known)}."
        return f"there is no setting {name!r}; {remedy}"
    if problem["type"] == "missing":
        return f"{name} must be given."
    if problem["type"] == "union_tag_invalid":
        return f"{name}.kind is {problem['ctx']['tag']!r}: must be one of {problem['ctx']['expected_tags']}."
    rule = _RULES.get(problem["type"], problem["msg"].removeprefix("Value error, ").rstrip("."))
    found = "" if isinstance(problem["input"], dict) else f" is {problem['input']!r}"
    offered = (example for field in fields for example in (*(field.examples or ()), field.default))
    right = [example for example in offered if isinstance(example, list | tuple) and example]
    if problem["type"] == "tuple_type" and right:
        rule += f", such as {yaml.safe_dump(list(right[0]), default_flow_style=True).strip()}"
    return f"{name}{found}: {rule[:1].lower()}{rule[1:]}."


def _place(kind: Any, location: list[Any]) -> tuple[list[Any], list[str], list[FieldInfo]]:
    """``location`` below ``kind`` without the kinds that stand in it, the names of the fields there, and its own field.

    Where one of several classes is chosen by its ``kind``, pydantic puts that into the location of an error.
    """
    path: list[Any] = []
    own: list[FieldInfo] = []
    found = _alternatives(kind)
    for part in location:
        classes = [one for one in found if isinstance(one, type) and issubclass(one, BaseModel)]
        kinds = {one.model_fields["kind"].default: one for one in classes if "kind" in one.model_fields}
        if len(kinds) > 1 and part in kinds:
            found = [kinds[part]]
            continue
        path.append(part)
        own = [one.model_fields[part] for one in classes if part in one.model_fields]
        fields = [field.annotation for field in own]
        items = [typing.get_args(one)[-1 if typing.get_origin(one) is dict else 0] for one in found if _collects(one)]
        found = [alternative for one in fields + items for alternative in _alternatives(one)]
    return path, [name for one in found if hasattr(one, "model_fields") for name in one.model_fields], own


def _collects(kind: Any) -> bool:
    return typing.get_origin(kind) in {dict, list, tuple}


def _alternatives(kind: Any) -> list[Any]:
    if typing.get_origin(kind) is Annotated:
        return _alternatives(typing.get_args(kind)[0])
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return [found for child in typing.get_args(kind) for found in _alternatives(child)]
    return [kind]
