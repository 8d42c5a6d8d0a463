"""Registry of backends by name; built-in and external backends are entry points of the group `relcrf.backends`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from relcrf import plugins
from relcrf.backends.base import AbstractBackend
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.settings import convert_settings, setting_names

ENTRY_POINT_GROUP = "relcrf.backends"

DEFAULT_BACKEND = "auto"
"""Name of the backend of a training that names none: it compares the other backends on held-out labels."""


def backend_names() -> list[str]:
    """Return the names of all installed backends, sorted."""
    return sorted({entry.name for entry in _entries()})


def _entries() -> tuple[EntryPoint, ...]:
    return plugins.list_entries(entry_points, ENTRY_POINT_GROUP)


def backend_class(name: str) -> type[AbstractBackend]:
    """Return the backend class of the given name.

    Raises:
        UsageError: If the name is unknown, or the package that provides the backend is broken.
    """
    matching = [entry for entry in _entries() if entry.name == name]
    if not matching:
        hint = suggestion(name, backend_names()) or f"installed backends: {listing(backend_names())}"
        raise UsageError(Diagnostic("E301", f"unknown backend '{name}'", hint=hint))
    return _load(matching[0])


def _load(entry: EntryPoint) -> type[AbstractBackend]:
    loaded: type[AbstractBackend] = plugins.load_entry(
        entry, "E303", "backend", lambda value: _type_error(entry, value)
    )
    return loaded


def _type_error(entry: EntryPoint, value: object) -> str | None:
    if isinstance(value, type) and issubclass(value, AbstractBackend):
        return None
    return f"{entry.value} is not a subclass of relcrf.backends.base.AbstractBackend"


def make_backend(name: str, **settings: Any) -> AbstractBackend:
    """Return a backend with settings that override the defaults; strings are converted to the type of the setting.

    The setting `preset` is replaced by the settings of this preset. Other arguments take precedence over them.

    Raises:
        UsageError: If the backend or a setting is unknown, or a value has the wrong type.
    """
    cls = backend_class(name)
    names = setting_names(cls)
    if name == DEFAULT_BACKEND and (unknown := next((each for each in settings if each not in names), None)):
        message = f"backend '{name}' has no setting '{unknown}', because it chooses the backend and its settings"
        owners = [each for each in ("ess", *backend_names()) if unknown in setting_names(backend_class(each))]
        example = f"name a backend that has this setting, e.g. --backend {owners[0]}" if owners else None
        hint = suggestion(unknown, names) or example or f"valid settings: {listing(names)}"
        raise UsageError(Diagnostic("E304", message, hint=hint))
    values = convert_settings(cls, f"backend '{name}'", settings, names)
    if values.get("preset") in cls.presets:
        values = {**cls.presets[values["preset"]], **values, "preset": ""}
    return cls(**values)
