"""Check who imports whom: the rule book is what each package declares.

A package may import exactly the sibling distributions in its `dependencies`, inside a package a
portion may import only itself and those before it in `[tool.composer] order`, and nobody inside
uses the front door. A new edge is therefore a visible change of one pyproject.toml. Imports are
read from the syntax tree, also those inside functions and under TYPE_CHECKING, so the check needs
nothing installed.

Run it as `python -P tools/floorplan.py`; it prints one line per violation and exits with 1 if
there is one. `--mypy-arguments` prints `-p composer -p composer.algorithms ...` instead.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

NAMESPACE = "composer"
PREFIX = "composer-"
FRONT_DOOR_OWNER = "composer-core"

# Import name -> distribution, where they differ.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "comet_ml": "comet-ml",
    "google": "protobuf",
    "slack_sdk": "slack-sdk",
    "streaming": "mosaicml-streaming",
    "yaml": "pyyaml",
}

# What `functional.py` of a method may import besides itself and its neighbours: tensors in,
# tensors out, no state and no events. A length of time is a value like a number.
PURE_PORTIONS = {"utils", "loss"}
PURE_MODULES = {"composer.core.time"}
PURE_ROOTS = {"torch", "numpy"}
PURE_INSIDE_FUNCTIONS = {"PIL", "schedulefree", "torchvision", "transformers"}


@dataclass(frozen=True)
class Import:
    """One import of one module.

    Args:
        path: The file it stands in.
        line: The line.
        module: The absolute name of the module.
        names: What is taken from it, for `from module import names`.
        typing_only: Whether it stands under `if TYPE_CHECKING`.
        in_function: Whether it runs only when a function is called.
    """

    path: Path
    line: int
    module: str
    names: tuple[str, ...] = ()
    typing_only: bool = False
    in_function: bool = False


@dataclass
class Package:
    """One distribution as its pyproject.toml describes it.

    Args:
        name: The distribution's name.
        folder: Its folder.
        version: Its present version.
        order: Its portions, lowest first.
        dependencies: Requirements of the base installation.
        extras: Requirements of all extras together.
    """

    name: str
    folder: Path
    version: str
    order: list[str]
    dependencies: list[str]
    extras: list[str] = field(default_factory=list)

    @property
    def source(self) -> Path:
        """The folder that holds the portions."""
        return self.folder / "src" / NAMESPACE

    @property
    def siblings(self) -> set[str]:
        """The sibling distributions of the base installation."""
        return {n for n in map(requirement_name, self.dependencies) if n.startswith(PREFIX)}

    def portions(self) -> list[str]:
        """The folders under `src/composer` that hold code."""
        if not self.source.is_dir():
            return []
        return sorted(
            child.name
            for child in self.source.iterdir()
            if child.is_dir() and any(child.rglob("*.py"))
        )


def requirement_name(requirement: str) -> str:
    """Return the normalised name of a requirement.

    Args:
        requirement: As written in pyproject.toml.

    Returns:
        The name.

    Example:
        >>> requirement_name("Composer_Core[x] >=0.1,<0.2")
        'composer-core'
    """
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def admits(requirement: str, version: str) -> bool:
    """Say whether a requirement admits a version.

    Args:
        requirement: As written in pyproject.toml.
        version: A plain version such as `0.1.0`.

    Returns:
        Whether all its clauses hold.

    Example:
        >>> admits("composer-core>=0.1,<0.2", "0.1.7"), admits("composer-core>=0.1,<0.2", "0.2.0")
        (True, False)
    """
    have = _key(version)
    for operator, bound in re.findall(r"(>=|<=|==|!=|>|<)\s*([0-9][0-9.]*)", requirement):
        want = _key(bound)
        holds = {
            ">=": have >= want,
            "<=": have <= want,
            "==": have == want,
            "!=": have != want,
            ">": have > want,
            "<": have < want,
        }[operator]
        if not holds:
            return False
    return True


def _key(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in re.findall(r"\d+", version)[:4]]
    return tuple(numbers + [0] * (4 - len(numbers)))


def read_packages(root: Path) -> list[Package]:
    """Read all distributions of the repository.

    Args:
        root: The repository's root.

    Returns:
        The packages, by name.
    """
    packages = []
    for file in sorted((root / "packages").glob("*/pyproject.toml")):
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        project = data["project"]
        version_file = file.parent / data["tool"]["hatch"]["version"]["path"]
        version = "0"
        if version_file.is_file():
            found = re.search(r'__version__ = "([^"]+)"', version_file.read_text(encoding="utf-8"))
            version = found[1] if found else "0"
        packages.append(
            Package(
                name=project["name"],
                folder=file.parent,
                version=version,
                order=list(data.get("tool", {}).get("composer", {}).get("order", [])),
                dependencies=list(project.get("dependencies", [])),
                extras=[
                    requirement
                    for listed in project.get("optional-dependencies", {}).values()
                    for requirement in listed
                ],
            )
        )
    return sorted(packages, key=lambda package: package.name)


def read_imports(path: Path, module: str) -> Iterator[Import]:
    """List the imports of a file.

    Args:
        path: The file.
        module: Its module name, to resolve relative imports; a package's ends in `.__init__`.

    Yields:
        The imports, wherever they stand.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    yield from _walk(tree, path, module, typing_only=False, in_function=False)


def _walk(
    node: ast.AST, path: Path, module: str, *, typing_only: bool, in_function: bool
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(path, child.lineno, alias.name, (), typing_only, in_function)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                parents = module.split(".")[: -child.level]
                base = ".".join([*parents, base] if base else parents)
            names = tuple(alias.name for alias in child.names)
            yield Import(path, child.lineno, base, names, typing_only, in_function)
        elif isinstance(child, ast.If) and _is_type_checking(child.test):
            body = ast.Module(body=child.body, type_ignores=[])
            rest = ast.Module(body=child.orelse, type_ignores=[])
            yield from _walk(body, path, module, typing_only=True, in_function=in_function)
            yield from _walk(rest, path, module, typing_only=typing_only, in_function=in_function)
        else:
            inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _walk(child, path, module, typing_only=typing_only, in_function=inside)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def check(root: Path) -> list[str]:
    """Check the whole repository.

    Args:
        root: The repository's root.

    Returns:
        One line per violation, empty if all is well.
    """
    packages = read_packages(root)
    by_name = {package.name: package for package in packages}
    problems = list(_check_folders(root))
    problems += _check_ownership(packages)
    problems += _check_siblings(packages, by_name)
    problems += _check_cycles(packages, by_name)
    owners = {portion: package for package in packages for portion in package.order}
    for package in packages:
        problems += _check_imports(root, package, owners)
    return problems


def _check_folders(root: Path) -> Iterator[str]:
    """A folder named like the namespace joins it when its parent is on the path."""
    for parent in ("", "packages", "tests", "tools", "docs"):
        if (root / parent / NAMESPACE).is_dir():
            where = f"{parent}/{NAMESPACE}" if parent else NAMESPACE
            yield f"{where}: a folder of this name here becomes part of the namespace"


def _check_ownership(packages: list[Package]) -> Iterator[str]:
    owned: dict[str, str] = {}
    for package in packages:
        for portion in package.order:
            if portion in owned:
                yield f"{package.name}: portion {portion} belongs to {owned[portion]} already"
            owned.setdefault(portion, package.name)
        for portion in package.portions():
            if portion not in package.order:
                yield (
                    f"{package.name}: portion {portion} is not in [tool.composer] order "
                    f"{package.order}"
                )
        if (package.source / "__init__.py").exists() and package.name != FRONT_DOOR_OWNER:
            yield f"{package.name}: only {FRONT_DOOR_OWNER} may ship {NAMESPACE}/__init__.py"


def _check_siblings(packages: list[Package], by_name: dict[str, Package]) -> Iterator[str]:
    for package in packages:
        for requirement in [*package.dependencies, *package.extras]:
            name = requirement_name(requirement)
            if not name.startswith(PREFIX):
                continue
            if name not in by_name:
                yield f"{package.name}: {requirement!r} is no package of this repository"
                continue
            version = by_name[name].version
            if not admits(requirement, version):
                yield f"{package.name}: {requirement!r} does not admit {name} {version}"
            if not (re.search(r">=\s*\d", requirement) and re.search(r"<\s*\d", requirement)):
                yield (f"{package.name}: {requirement!r} must be a range, such as {name}>=0.1,<0.2")


def _check_cycles(packages: list[Package], by_name: dict[str, Package]) -> Iterator[str]:
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> Iterator[str]:
        if name in above:
            yield f"cycle among distributions: {' -> '.join([*above[above.index(name) :], name])}"
            return
        if name in done or name not in by_name:
            return
        for sibling in sorted(by_name[name].siblings):
            yield from visit(sibling, (*above, name))
        done.add(name)

    for package in packages:
        yield from visit(package.name, ())


def _check_imports(root: Path, package: Package, owners: dict[str, Package]) -> Iterator[str]:
    base = {requirement_name(requirement) for requirement in package.dependencies}
    extras = {requirement_name(requirement) for requirement in package.extras}
    for path in sorted(package.source.rglob("*.py")):
        relative = path.relative_to(package.source)
        parts = [NAMESPACE, *relative.with_suffix("").parts]
        portion = relative.parts[0] if len(relative.parts) > 1 else None
        for found in read_imports(path, ".".join(parts)):
            where = f"{path.relative_to(root)}:{found.line}"
            top = found.module.partition(".")[0]
            if top == NAMESPACE:
                problem = _judge_sibling(found, package, portion, owners)
            else:
                problem = _judge_foreign(top, found, package, base, extras)
            if problem:
                yield f"{where}: {problem}"
            if problem := _judge_functional(relative, found):
                yield f"{where}: {problem}"


def _judge_sibling(
    found: Import, package: Package, portion: str | None, owners: dict[str, Package]
) -> str | None:
    parts = found.module.split(".")
    if portion is None:
        # The root's own modules: the front door lists names of all floors for type checkers.
        if found.typing_only:
            return None
        if len(parts) > 1 and parts[1].startswith("_"):
            return None
    if len(parts) == 1:
        # `from composer import core` runs through the front door as well.
        return f"uses the front door ({', '.join(found.names) or NAMESPACE}); import from its home"
    target = parts[1]
    if target not in owners:
        if target.startswith("_") and FRONT_DOOR_OWNER in {package.name, *package.siblings}:
            return None
        return f"imports {found.module}, which no package owns"
    owner = owners[target]
    if owner.name != package.name:
        if owner.name in package.siblings:
            return None
        return (
            f"imports {found.module} of {owner.name}, which {package.name} does not declare in "
            f"its dependencies"
        )
    if portion is None or portion not in package.order or found.typing_only:
        # Inside one package an annotation may name what is above; it is never imported.
        return None
    if package.order.index(target) > package.order.index(portion):
        return (
            f"portion {portion} imports {found.module} above it; the order of {package.name} is "
            f"{' < '.join(package.order)}"
        )
    return None


def _judge_foreign(
    top: str, found: Import, package: Package, base: set[str], extras: set[str]
) -> str | None:
    if top in sys.stdlib_module_names or (top == "_typeshed" and found.typing_only):
        return None
    distribution = DISTRIBUTIONS.get(top, re.sub(r"[-_.]+", "-", top).lower())
    if distribution in base:
        return None
    lazy = found.typing_only or found.in_function
    if lazy and distribution in extras:
        return None
    if distribution in extras:
        return f"imports {top} of an extra at module level; import it where it is used"
    return f"imports {top}, which {package.name} does not declare (distribution {distribution})"


def _judge_functional(relative: Path, found: Import) -> str | None:
    if relative.parts[0] != "algorithms" or relative.name != "functional.py":
        return None
    parts = found.module.split(".")
    if parts[0] in sys.stdlib_module_names or parts[0] in PURE_ROOTS:
        return None
    if parts[0] == NAMESPACE and len(parts) > 1:
        if parts[1] in PURE_PORTIONS or found.module in PURE_MODULES:
            return None
        if parts[1] == "algorithms" and parts[-1] != "algorithm":
            return None
    elif parts[0] in PURE_INSIDE_FUNCTIONS and (found.in_function or found.typing_only):
        return None
    return f"functional.py imports {found.module}; it may use torch and its sibling helpers only"


def main(argv: list[str] | None = None) -> int:
    """Run the check, or print the arguments for mypy.

    Args:
        argv: Command-line words; those of the process if None.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description="check who imports whom")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--mypy-arguments", action="store_true", help="print -p for each portion")
    args = parser.parse_args(argv)
    packages = read_packages(args.root)
    if args.mypy_arguments:
        # The front door's own package is found whole; the portions elsewhere one by one.
        portions = [
            portion
            for package in packages
            if package.name != FRONT_DOOR_OWNER
            for portion in package.portions()
        ]
        print(f"-p {NAMESPACE}", *(f"-p {NAMESPACE}.{portion}" for portion in sorted(portions)))
        return 0
    problems = check(args.root)
    for problem in problems:
        print(problem)
    if problems:
        print(f"floor plan: {len(problems)} violations", file=sys.stderr)
        return 1
    number = sum(len(list(package.source.rglob("*.py"))) for package in packages)
    print(f"floor plan: {len(packages)} packages, {number} files, no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
