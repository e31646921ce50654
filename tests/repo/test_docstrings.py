"""What is documented exists, and what exists is documented."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from composer_testing.repository import modules_of, portions

SECTIONS = r"(Args|Arguments|Returns|Yields|Raises|Example|Examples|Attributes|Note|Notes|Warns)"


def documented_arguments(docstring: str, section: str = "Args") -> set[str]:
    """Read the names of a section of a docstring in Google style."""
    found = re.search(
        rf"^{section}:\n(.*?)(?=^{SECTIONS}:|^\S|\Z)",
        inspect.cleandoc(docstring),
        re.MULTILINE | re.DOTALL,
    )
    if not found:
        return set()
    # Names stand at the first level of indentation, their text may go on below.
    body = textwrap.dedent(found[1])
    names: set[str] = set()
    for line in re.findall(r"^([*\w][\w*, ]*?)(?: \([^)]*\))?:", body, re.MULTILINE):
        names |= {name.strip().lstrip("*") for name in line.split(",")}
    return names


def signature_arguments(thing: Any, *, bound: bool) -> set[str]:
    parameters = list(inspect.signature(thing).parameters.values())
    if bound:
        parameters = parameters[1:]
    return {p.name for p in parameters if not p.name.startswith("_")}


def problems_of_function(
    where: str, function: Any, docstring: str | None, *, bound: bool
) -> Iterator[str]:
    if not docstring:
        yield f"{where}: has no docstring"
        return
    told, real = documented_arguments(docstring), signature_arguments(function, bound=bound)
    if told - real:
        yield f"{where}: documents {sorted(told - real)}, which it does not accept"
    if real - told:
        yield f"{where}: does not document {sorted(real - told)}"


def overrides(contract: Any, function: Any) -> bool:
    """Say whether a method without words is told at the documented one that it overrides."""
    if contract is None or not getattr(contract, "__doc__", None):
        return False
    if not inspect.isfunction(contract):
        # A method of a built-in type, such as `list.append`.
        return inspect.ismethoddescriptor(contract)
    wanted = signature_arguments(contract, bound=True)
    return signature_arguments(function, bound=True) <= wanted


def problems_of_class(where: str, cls: type, *, exported: bool) -> Iterator[str]:
    docstring = vars(cls).get("__doc__") or ""
    if not docstring:
        yield f"{where}: has no docstring"
    is_enum = issubclass(cls, enum.Enum)
    if not is_enum and ("__init__" in vars(cls) or dataclasses.is_dataclass(cls)):
        init = vars(cls).get("__init__", cls.__init__)
        told = documented_arguments(docstring) | documented_arguments(init.__doc__ or "")
        is_record = dataclasses.is_dataclass(cls)
        if is_record and not told:
            told = documented_arguments(docstring, "Attributes")
        real = signature_arguments(init, bound=True)
        # The fields of a record between the modules of a portion are read where they stand, and
        # a protocol gets an __init__ that nobody calls.
        is_private = is_record and not told and not exported
        if not is_private and not getattr(cls, "_is_protocol", False):
            if told - real:
                yield f"{where}: documents {sorted(told - real)}, which it does not accept"
            if real - told:
                yield f"{where}: does not document {sorted(real - told)}"
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        label = f"{where}.{name}"
        bound = not isinstance(member, staticmethod)
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(member, property):
            if not member.__doc__:
                yield f"{label}: has no docstring"
        elif inspect.isfunction(function):
            if not function.__doc__ and any(
                overrides(vars(base).get(name), function) for base in cls.__mro__[1:]
            ):
                # An override with the same arguments is told at its contract.
                continue
            yield from problems_of_function(label, function, function.__doc__, bound=bound)


# The parts that `Trainer` is made of: users meet them through it, and an example of one alone would
# need all the others.
INSIDE = "composer.trainer."


def problems_of_module(module: Any, public: set[int]) -> Iterator[str]:
    if not module.__doc__:
        yield f"{module.__name__}: has no docstring"
    for name in getattr(module, "__all__", ()):
        thing = getattr(module, name)
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        where = f"{module.__name__}.{name}"
        if inspect.isclass(thing):
            yield from problems_of_class(where, thing, exported=id(thing) in public)
        elif inspect.isfunction(thing):
            yield from problems_of_function(where, thing, thing.__doc__, bound=False)
        else:
            continue
        is_error = inspect.isclass(thing) and issubclass(thing, Exception)
        if is_error or (module.__name__.startswith(INSIDE) and id(thing) not in public):
            continue
        if ">>>" not in (thing.__doc__ or ""):
            yield f"{where}: has no example"


@pytest.mark.parametrize("portion", sorted(portions()))
def test_docstrings_and_signatures_agree(portion: str) -> None:
    modules = list(modules_of(portion))
    public = {id(getattr(modules[0], name)) for name in getattr(modules[0], "__all__", ())}
    found = [problem for module in modules for problem in problems_of_module(module, public)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("portion", sorted(portions()))
def test_exported_names_exist_and_are_listed(portion: str) -> None:
    for module in modules_of(portion):
        exported = getattr(module, "__all__", None)
        if exported is None:
            continue
        assert len(exported) == len(set(exported)), module.__name__
        for name in exported:
            assert getattr(module, name, None) is not None, f"{module.__name__}.{name}"


def test_parser_reads_google_sections() -> None:
    text = """Do it.

    Args:
        first: What: with a colon.
            Continued: here.
        second (int): Typed.
        *rest: More.
        **options: Even more.

    Returns:
        third: not an argument.
    """
    assert documented_arguments(text) == {"first", "second", "rest", "options"}


def test_finder_reports_both_directions() -> None:
    def drifted(a: int, b: int) -> None:
        """Drift.

        Args:
            a: Real.
            c: Gone.
        """

    assert list(problems_of_function("f", drifted, drifted.__doc__, bound=False)) == [
        "f: documents ['c'], which it does not accept",
        "f: does not document ['b']",
    ]
