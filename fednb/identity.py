"""What was asked for, in words: the text on which a record's key stands.

``describe`` writes a method, a law or a network as the call that makes it, with only
the arguments that differ from their defaults: ``IFCA(clusters=10)``,
``subset(law=iid(clients=30), samples=6000)``. So a new argument with a default that
changes nothing moves no key.

A class or function whose *behaviour* changes gets a higher ``revision``, an integer
attribute (1 if there is none). It is part of the description, ``IFCA@2(clusters=10)``,
so that records of the earlier behaviour are not taken for new ones::

    class IFCA:
        revision: ClassVar[int] = 2  # ties go to the first cluster

Library functions go by their name alone, so that they can move between modules; a test
holds that no two of them share a described name. Functions and classes from elsewhere
go by module, name and a hash of their source, and of the classes, functions and plain
values of their own module that they use. Arrays go by a hash of their bytes.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache, partial
from types import CodeType
from typing import Any

import numpy as np
import torch

REVISION = re.compile(r"\w@\d+\(")
NAME = re.compile(r"[^#@(]*")


def digest(value: Any) -> str:
    """Hash of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def describe(value: Any) -> str:
    """Write a value as the expression that makes it; raise if no text can name it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    if hasattr(value, "to_numpy"):  # a column or a table of pandas
        value = value.to_numpy()
    if isinstance(value, np.ndarray | torch.Tensor):
        return _array(value)
    if isinstance(value, Mapping):
        items = sorted(value.items(), key=lambda item: str(item[0]))
        return "{" + ", ".join(f"{k!r}: {describe(v)}" for k, v in items) + "}"
    if isinstance(value, tuple | list | range):
        return "(" + ", ".join(describe(v) for v in value) + ")"
    if is_dataclass(value) and not isinstance(value, type):
        return _instance(value)
    if isinstance(value, partial):
        return _call(value.func, value.args, value.keywords)
    if isinstance(value, type):
        return _name(value)
    if callable(value):
        return _call(value, (), {})
    raise TypeError(
        f"a record cannot name {value!r} of type {type(value).__name__}: "
        "use numbers, texts, tuples, arrays, dataclasses, or functions"
    )


def tell_apart(value: Any) -> str:
    """Describe anything, also what a record cannot name, for comparison only.

    A lambda goes by its place and source, a network by its layers and numbers.
    """
    try:
        return describe(value)
    except (TypeError, ValueError):
        pass
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(tell_apart, value)) + ")"
    if isinstance(value, partial):
        bound = [*value.args, *sorted(value.keywords.items())]
        return f"{tell_apart(value.func)} with {tell_apart(bound)}"
    if isinstance(value, torch.nn.Module):
        return f"{describe_network(value)} {describe(value.state_dict())}"
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}#{_source(value)}"
    return repr(value)


def describe_network(module: torch.nn.Module) -> str:
    """A network's layers with their types, and all its tensors with their shapes."""
    layers = [
        f"{name}: {type(layer).__module__}.{type(layer).__qualname__}"
        for name, layer in module.named_modules()
    ]
    tensors = [
        f"{name}: {tuple(p.shape)} {p.dtype} {p.requires_grad}"
        for name, p in [*module.named_parameters(), *module.named_buffers()]
    ]
    return "\n".join([str(module), *layers, *tensors])


def name_in(description: str) -> str:
    """The name with which a description begins: ``IFCA`` of ``IFCA@2(clusters=10)``."""
    found = NAME.match(description)
    assert found is not None  # it matches the empty text, too
    return found[0]


def integer_in(description: str, argument: str) -> int | None:
    """The integer given for an argument, here or in a call inside; None: no integer.

    A record holds what was asked for as a description only. This reads it back:
    ``integer_in("subset(law=iid(clients=30), samples=6000)", "clients")`` is 30.
    """
    found = re.search(rf"\b{argument}=(\d+)\b(?!\.)", description)
    if found is None:
        return None
    return int(found[1])


def revision(thing: Callable[..., Any]) -> int:
    """The revision of a class or function: 1 unless its author has raised it."""
    return getattr(thing, "revision", 1)


def _instance(value: Any) -> str:
    """A dataclass instance, with the fields that differ from their defaults.

    A class that came from another process brings its own copy of ``MISSING``.
    """
    nothing = type(MISSING)
    arguments = {}
    for field in fields(value):
        default, factory = field.default, field.default_factory
        if callable(factory):
            default = factory()
        elif isinstance(default, nothing):
            default = MISSING
        arguments[field.name] = (getattr(value, field.name), default)
    return _name(type(value)) + _arguments(arguments, MISSING)


_signature = lru_cache(maxsize=1000)(inspect.signature)


def _call(function: Callable[..., Any], args: tuple, keywords: dict) -> str:
    """A function with its bound arguments, by name, those of default value left out."""
    name = _name(function)
    try:
        signature = _signature(function)
    except ValueError:  # some built-in functions have none
        bound = {str(i): value for i, value in enumerate(args)} | keywords
        return name + _arguments({k: (v, MISSING) for k, v in bound.items()}, MISSING)
    arguments = {}
    for key, value in signature.bind_partial(*args, **keywords).arguments.items():
        kind = signature.parameters[key].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            for further in sorted(value):
                arguments[further] = (value[further], inspect.Parameter.empty)
        else:
            arguments[key] = (value, signature.parameters[key].default)
    return name + _arguments(arguments, inspect.Parameter.empty)


def _arguments(arguments: dict[str, tuple[Any, Any]], none: Any) -> str:
    """``(a=1, b=2)`` for name → (value, default); ``none`` stands for no default."""
    words = []
    for name, (value, default) in arguments.items():
        text = describe(value)
        same = default is not none and text == describe(default)
        if not same or REVISION.search(text):
            words.append(f"{name}={text}")
    return "(" + ", ".join(words) + ")"


def _name(thing: Callable[..., Any]) -> str:
    """A class or function by name, from outside the library with home and source."""
    name = getattr(thing, "__qualname__", None)
    module = getattr(thing, "__module__", None) or "builtins"
    if name is None:
        raise TypeError(f"a record cannot name {thing!r}: use a function or a class")
    if "<lambda>" in name:
        raise ValueError(
            "a record cannot name a lambda: use a function, or functools.partial of one"
        )
    mark = ""
    if revision(thing) != 1:
        mark = f"@{revision(thing)}"
    if module.partition(".")[0] == "fednb":
        return thing.__name__ + mark
    if getattr(thing, "__closure__", None):
        raise ValueError(
            f"a record cannot name {name}, whose outcome depends on variables around "
            "it: pass them as arguments, bound by functools.partial"
        )
    source = _source(thing)
    if source:
        source = f"#{source}"
    return f"{module}.{name}{source}{mark}"


def _source(thing: Callable[..., Any]) -> str:
    """Hash of a class or function and of what it uses; "" for one written in C."""
    own = _own_source(thing)
    used = [f"{name}={text}" for name, text in sorted(_used(thing).items())]
    if not used:
        return own
    return hashlib.sha256("\n".join([own, *used]).encode()).hexdigest()[:12]


def _used(thing: Callable[..., Any]) -> dict[str, str]:
    """What a class or function uses of its own module, by name: bases, helpers, values.

    Helpers of helpers count too. A function goes by the hash of its source.
    """
    found: dict[str, str] = {}
    waiting: list[Any] = [thing]
    while waiting:
        for name, value in _named(waiting.pop()).items():
            if name in found or value is thing:
                continue
            if isinstance(value, bool | int | float | str):
                found[name] = repr(value)
            elif getattr(value, "__module__", None) == thing.__module__ and (
                inspect.isfunction(value) or isinstance(value, type)
            ):
                found[name] = _own_source(value)
                waiting.append(value)
    return found


def _named(thing: Any) -> dict[str, Any]:
    """Bases of a class, and the global variables that its functions name."""
    named: dict[str, Any] = {}
    parts = [thing]
    if isinstance(thing, type):
        parts = list(vars(thing).values())
        named = {base.__qualname__: base for base in thing.__mro__[1:]}
    for part in parts:
        function = inspect.unwrap(getattr(part, "__func__", part))
        if not inspect.isfunction(function):
            continue
        codes = [function.__code__]
        for code in codes:  # grows by the functions inside
            codes += [inner for inner in code.co_consts if inspect.iscode(inner)]
            for name in _global_names(code):
                if name in function.__globals__:
                    named[name] = function.__globals__[name]
    return named


def _global_names(code: CodeType) -> set[str]:
    """The global variables that code reads; attributes, as n in fed.n, are none."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    return {step.argval for step in dis.get_instructions(code) if step.opname in loads}


@lru_cache(maxsize=1000)
def _own_source(thing: Callable[..., Any]) -> str:
    """Hash of the source of a class or function; "" for one written in C."""
    try:
        text = inspect.getsource(thing)
    except (OSError, TypeError):  # typed in at a prompt, or compiled
        parts: list[Any] = [thing]
        if isinstance(thing, type):
            parts += vars(thing).values()
        codes: list[Any] = [p.__code__ for p in parts if hasattr(p, "__code__")]
        if not codes:
            return ""
        text = str(
            [(code.co_code, code.co_names, str(code.co_consts)) for code in codes]
        )
        text = re.sub(r"0x[0-9a-f]+", "", text)  # addresses of nested code objects
        text += _defaults(thing)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _defaults(thing: Callable[..., Any]) -> str:
    """The defaults of a dataclass's fields, which stand in none of its functions."""
    if not is_dataclass(thing):
        return ""
    return str([(field.name, repr(field.default)) for field in fields(thing)])


def _array(value: np.ndarray | torch.Tensor) -> str:
    array = value
    if isinstance(array, torch.Tensor):
        array = array.detach().cpu().numpy()
    if array.dtype == object:
        if not all(isinstance(item, str) for item in array.flat):
            raise TypeError(
                "a record cannot name an array of objects: use numbers or words"
            )
        array = array.astype(str)
    found = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    return f"array({array.dtype}, {array.shape}, sha256:{found})"
