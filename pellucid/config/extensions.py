"""Extensions by name: built in, registered in this process, or declared as entry points by installed packages.

A configuration and a run folder hold names only. The object of a name comes from this process or from an installed
package, so no code is read from a run folder.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points, packages_distributions
from typing import Generic, NamedTuple, TypeVar

from pellucid.argument_checks import argument_error
from pellucid.error_messages import join_choices, suggest_choice
from pellucid.errors import ConfigError, abbreviate_reason, quote

ExtensionT = TypeVar("ExtensionT")
MAX_NAME_LENGTH = 100
"""Maximum number of characters of a name."""


def is_valid_name(name: str) -> bool:
    """Return whether a name can be that of an extension: it is printable, not empty, not too long, and has no slash.

    Args:
        name: The name.
    """
    return 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and "/" not in name


def check_name(argument: str, name: str) -> None:
    """Check that a name can be that of an extension; the functions that register one call it.

    Args:
        argument: Argument of the public function that holds the name, for the message.
        name: The name.

    Raises:
        ArgumentError: The name is not valid.
    """
    if not is_valid_name(name):
        raise argument_error(argument, f"printable text of 1 to {MAX_NAME_LENGTH} characters without a slash", name)


class PackageVersion(NamedTuple):
    """An installed package and its version."""

    name: str
    version: str

    def __str__(self) -> str:
        """Return both: "my-attention 1.2"."""
        return f"{self.name} {self.version}"


@dataclass(eq=False)
class ExtensionRegistry(Generic[ExtensionT]):
    """All values of a setting that other packages may extend, such as the names of tasks."""

    noun: str
    """What a name denotes, in messages: "task"."""
    group: str
    """Group of the entry points."""
    function: str
    """Public function that registers an extension, with its arguments, in messages."""
    built_in: Collection[str]
    """Names that cannot be registered."""
    provides: Callable[[str, object], bool]
    """Function that returns whether an object that an entry point of a name provides can be its extension."""
    is_training_only: bool = False
    """Whether a trained run can be used where the extension is not installed: only a training needs it."""
    registered: dict[str, ExtensionT] = field(default_factory=dict)
    """Extensions that are registered in this process, by name."""
    packages: dict[str, PackageVersion | None] = field(default_factory=dict)
    """Packages that were found before, by the name of their extension: the code in memory is theirs, also if another
    version is installed meanwhile."""

    @cached_property
    def declared(self) -> Mapping[str, EntryPoint]:
        """Entry points of installed packages, by name, without the built-in names."""
        return {entry.name: entry for entry in entry_points(group=self.group) if entry.name not in self.built_in}

    def names(self) -> tuple[str, ...]:
        """Return all names: built in, registered in this process, and declared by installed packages."""
        return tuple(dict.fromkeys((*self.built_in, *self.registered, *self.declared)))

    def __contains__(self, name: object) -> bool:
        """Return whether a name is built in, registered or declared; a declared extension is not loaded.

        Args:
            name: Value of the setting.
        """
        return name in self.built_in or name in self.registered or name in self.declared

    def add(self, name: str, extension: ExtensionT) -> None:
        """Register an extension in this process, in place of a registered one of the same name.

        Args:
            name: Value of the setting.
            extension: The extension.

        Raises:
            ConfigError: The name is built in.
        """
        if name in self.built_in:
            raise ConfigError(f"the name {quote(name)} belongs to a built-in {self.noun}")
        self.registered[name] = extension

    def get(self, name: str) -> ExtensionT:
        """Return an extension that is not built in; if a package declares it, import and register it first.

        Args:
            name: Value of the setting.

        Raises:
            ConfigError: There is no such extension, or its entry point cannot be loaded or does not provide it.
        """
        if name not in self.registered:
            entry = self.declared.get(name)
            if entry is None:
                known = self.names()
                expected = f"expected {join_choices(known)}{suggest_choice(name, known)}"
                raise ConfigError(f"unknown {self.noun} {quote(name)}: {expected}")
            self.add(name, self._load(name, entry))
        return self.registered[name]

    def package(self, name: str) -> PackageVersion | None:
        """Return the installed package that provides an extension.

        Args:
            name: Value of the setting.

        Returns:
            The package and its version; None for a built-in name, and for an extension that no installed package
            provides, such as a class of a script, or of a package that was removed while it was in use.
        """
        if name in self.built_in:
            return None
        if self.packages.get(name) is None:
            self.packages[name] = self._find_package(name)
        return self.packages[name]

    def _find_package(self, name: str) -> PackageVersion | None:
        """Return the installed package that provides an extension; None without one."""
        module = _module_name(self.registered[name]) if name in self.registered else ""
        entry = self.declared.get(name)
        if entry is not None and entry.dist is not None and module in ("", entry.module):
            return _package_version(entry.dist)
        top_level = module.partition(".")[0]
        names = _packages_by_module().get(top_level, []) if top_level else []
        try:
            return _package_version(Distribution.from_name(names[0])) if names else None
        except PackageNotFoundError:
            return None

    def _load(self, name: str, entry: EntryPoint) -> ExtensionT:
        """Return the extension of an entry point; raise `ConfigError` if it cannot be loaded or is no extension."""
        try:
            extension = entry.load()
        except Exception as error:  # the code of another package may raise anything
            origin = f"the entry point {quote(entry.value)} of the {self.noun} {quote(name)}"
            raise ConfigError(f"{origin} cannot be loaded: {abbreviate_reason(error)}") from error
        if not self.provides(name, extension):
            raise ConfigError(f"the entry point {quote(entry.value)} does not provide the {self.noun} {quote(name)}")
        loaded: ExtensionT = extension
        return loaded

    def missing_message(self, key: str, name: str) -> str:
        """Return the message for a saved configuration whose extension this process does not know.

        Args:
            key: Full key of the setting.
            name: Value of the setting.
        """
        return (
            f"{key} = {quote(name)} is neither built in nor installed: install the package that declares it in "
            f"the entry points {quote(self.group)}, or call {self.function} first; known are "
            f"{join_choices(self.names()).replace(' or ', ' and ')}"
        )


def _package_version(distribution: Distribution) -> PackageVersion | None:
    """Return the name and version of a package; None if its files were removed."""
    metadata = distribution.metadata
    name, version = (metadata[key] if metadata is not None else None for key in ("Name", "Version"))
    return PackageVersion(name, version) if name and version else None


@cache
def _packages_by_module() -> Mapping[str, list[str]]:
    """Return the names of the installed packages that hold each top-level module; found once, which takes a while."""
    return packages_distributions()


def _module_name(extension: object) -> str:
    """Return the name of the module of a class, or of the class of an object; "" if it has none."""
    try:
        module = (extension if isinstance(extension, type) else type(extension)).__module__
    except Exception:  # the class of another package may raise anything
        return ""
    return module if isinstance(module, str) else ""
