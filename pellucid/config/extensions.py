"""Extensions by name: built in, registered in this process, or declared as entry points by installed packages.

A configuration and a run folder hold names only. The object of a name comes from this process or from an installed
package, so no code is read from a run folder.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points, packages_distributions
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pellucid.argument_checks import argument_error, convert_argument
from pellucid.error_messages import join_choices, suggest_choice
from pellucid.errors import ArgumentError, ConfigError, MissingExtensionError, abbreviate_reason, quote

ExtensionT = TypeVar("ExtensionT")
OTHER_MODULES = frozenset({"pellucid", "torch", *sys.stdlib_module_names})
"""Top-level modules that are no code of another package."""
MAX_NAME_LENGTH = 100
"""Maximum number of characters of a name."""


def is_valid_name(name: str) -> bool:
    """Return whether a name can be that of an extension: it is printable, not empty, not too long, and has no slash.

    Args:
        name: The name.
    """
    return 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and "/" not in name


def convert_name(argument: str, name: object) -> str:
    """Return a name that can be that of an extension; the functions that register one call it.

    Args:
        argument: Argument of the public function that holds the name, for the message.
        name: The name.

    Raises:
        ArgumentError: The name is not a text, or is not valid.
    """
    text: str = convert_argument(argument, name, str)
    if not is_valid_name(text):
        raise argument_error(argument, f"printable text of 1 to {MAX_NAME_LENGTH} characters without a slash", text)
    return text


def is_class(value: object) -> bool:
    """Return whether a value is a class.

    Args:
        value: Value of another package, whose methods may raise any error.
    """
    return issubclass(type(value), type)  # isinstance would read __class__


def takes_arguments(function: Callable[..., object], num_positional: int, keywords: Sequence[str] = ()) -> bool:
    """Return whether a function can be called with arguments, and a class be built with them.

    Args:
        function: Function or class of another package.
        num_positional: Number of positional arguments.
        keywords: Names of the keyword arguments.
    """
    try:
        inspect.signature(function).bind(*[None] * num_positional, **dict.fromkeys(keywords))
    except (TypeError, ValueError):
        return False
    return True


def own_modules(value: object) -> frozenset[str]:
    """Return the top-level modules in which a class of another package and its bases are defined, for messages.

    Args:
        value: Class of another package, or an object of one.
    """
    bases = (cast(type, value) if is_class(value) else type(value)).__mro__
    names = frozenset(_module_name(each).partition(".")[0] for each in bases)
    return names - OTHER_MODULES


class ClassRequirement(NamedTuple):
    """Requirement that the classes of a registry fulfill: it knows their base class, which config/ does not import."""

    text: str
    """The requirement in messages: "a subclass of pellucid.CellSpec without arguments"."""
    accepts: Callable[[Any], bool]
    """Function that returns whether a class fulfills it."""
    find_fault: Callable[[Any], str] = lambda value: ""
    """Function that returns an attribute of a class that is wrong, in words; "" if there is none."""

    def is_met(self, value: object) -> bool:
        """Return whether a value is a class that fulfills the requirement; an error of its own code counts as no.

        Args:
            value: Value of another package.
        """
        try:
            return is_class(value) and self.accepts(value)
        except Exception:  # the class of another package may raise anything
            return False

    def argument_error(self, argument: str, value: object) -> ArgumentError:
        """Return the error for a class that does not fulfill the requirement.

        Args:
            argument: Argument of the public function that holds the class.
            value: Value of another package.
        """
        return ArgumentError(f"{argument_error(argument, self.text, value)}{self.describe_fault(value)}")

    def describe_fault(self, value: object) -> str:
        """Return what is wrong with a class, as the end of a message: methods, an attribute, or its constructor.

        Args:
            value: Value of another package.
        """
        try:
            fault = self.find_fault(value) if is_class(value) and not _lacking_methods(value) else ""
        except Exception:  # the class of another package may raise anything
            fault = ""
        return f"; {fault}" if fault else _describe_class(value)


def _lacking_methods(value: object) -> list[str]:
    """Return the names of the methods that a class must define and does not."""
    return sorted(getattr(value, "__abstractmethods__", ()))


def _describe_class(value: object) -> str:
    """Return the methods that a class lacks, or else the arguments of its constructor, as the end of a message."""
    try:
        if not is_class(value):
            return ""
        if lacking := _lacking_methods(value):
            return f"; it lacks {', '.join(f'{name}()' for name in lacking)}"
        parameters = inspect.signature(cast(type, value)).parameters
        return f"; its constructor takes {', '.join(parameters) or 'no arguments'}"
    except Exception:  # the class of another package may raise anything
        return ""


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

    kind: str
    """Kind of the extensions, in messages: "task"."""
    group: str
    """Group of the entry points."""
    register_call: str
    """Call of the public function that registers an extension, in messages."""
    built_in: Collection[str]
    """Names that cannot be registered."""
    provided: str
    """Object that an entry point must provide, in messages: "a subclass of pellucid.CellSpec"."""
    is_extension: Callable[[object], bool]
    """Function that returns whether an object that an entry point provides can be an extension."""
    own_name: Callable[[ExtensionT], str] | None = None
    """Function that returns the name that an extension has itself, as a task has; None for classes, which have none."""
    is_training_only: bool = False
    """Whether a trained run can be used where the extension is not installed: only a training needs it."""
    registered: dict[str, ExtensionT] = field(default_factory=dict)
    """Extensions that are registered in this process, by name."""
    packages: dict[str, PackageVersion | None] = field(default_factory=dict)
    """Packages that were found before, by the name of their extension: the code in memory is theirs, also if another
    version is installed meanwhile."""

    @cached_property
    def declared(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        """Entry points of installed packages, by name, without the built-in names; those of one object count once."""
        return {name: entries for name, entries in self._entries.items() if name not in self.built_in}

    @cached_property
    def _entries(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        """Entry points of installed packages, by name; those of one object count once."""
        entries = dict[str, dict[str, EntryPoint]]()
        for entry in entry_points(group=self.group):
            entries.setdefault(entry.name, {}).setdefault(entry.value, entry)
        return {name: tuple(by_value.values()) for name, by_value in entries.items()}

    def absent_note(self, value: object) -> str:
        """Return the end of a message about an unknown name: it may be of a package that is not installed.

        Args:
            value: The unknown value; "" for one that is not a valid name, or that is similar to a known one.
        """
        if type(value) is not str or not is_valid_name(value) or suggest_choice(value, self.names()):
            return ""
        return f"; the {self.kind} of another package is known once that package is installed"

    def unused_note(self, key: str, name: str) -> str:
        """Return a sentence if an installed package declares a built-in name, which stays the built-in one; else "".

        Args:
            key: Full key of the setting.
            name: Value of the setting.
        """
        entries = self._entries.get(name, ()) if name in self.built_in else ()
        if not entries:
            return ""
        return (
            f"{key} = {quote(name)} is the built-in {self.kind}: the entry point of this name of "
            f"{' and '.join(sorted(map(_describe_entry_point, entries)))} is not used; give it another name"
        )

    def names(self) -> tuple[str, ...]:
        """Return all names: built in, registered in this process, and declared by installed packages."""
        return tuple(dict.fromkeys((*self.built_in, *self.registered, *self.declared)))

    def __contains__(self, name: object) -> bool:
        """Return whether a name is built in, registered or declared; a declared extension is not loaded.

        Args:
            name: Value of the setting.
        """
        return name in self.built_in or name in self.registered or name in self.declared

    def is_local(self, name: str) -> bool:
        """Return whether an extension is registered in this process, and no installed package declares it.

        Args:
            name: Value of the setting.
        """
        return name in self.registered and name not in self.declared

    def register(self, name: str, extension: ExtensionT) -> None:
        """Register an extension in this process, in place of a registered one of the same name.

        Args:
            name: Value of the setting.
            extension: The extension.

        Raises:
            ConfigError: The name is built in.
        """
        if name in self.built_in:
            raise ConfigError(f"the name {quote(name)} belongs to a built-in {self.kind}")
        self.registered[name] = extension
        self.packages.pop(name, None)  # of the former one

    def register_class(self, argument: str, name: object, value: ExtensionT, requirement: ClassRequirement) -> None:
        """Register a class in this process, after a check of the arguments of the public function that registers it.

        Args:
            argument: Argument of the public function that holds the class, for the message.
            name: Argument `name` of the public function: value of the setting.
            value: The class.
            requirement: Requirement of the class.

        Raises:
            ArgumentError: The name is not valid, or the class does not fulfill the requirement.
            ConfigError: The name is built in.
        """
        valid_name = convert_name("name", name)
        if not requirement.is_met(value):
            raise requirement.argument_error(argument, value)
        self.register(valid_name, value)

    def get(self, name: str) -> ExtensionT:
        """Return an extension that is not built in; if a package declares it, import and register it first.

        Args:
            name: Value of the setting.

        Raises:
            MissingExtensionError: There is no such extension.
            ConfigError: Several packages declare it, or its entry point cannot be loaded or does not provide it.
        """
        if name not in self.registered:
            entries = self.declared.get(name, ())
            if not entries:
                known = self.names()
                expected = f"expected {join_choices(known)}{suggest_choice(name, known)}"
                raise MissingExtensionError(f"unknown {self.kind} {quote(name)}: {expected}")
            if len(entries) > 1:
                packages = " and ".join(sorted(map(_describe_entry_point, entries)))
                raise ConfigError(
                    f"the {self.kind} {quote(name)} is declared by {packages}: remove all but one of these packages, "
                    f"or call {self.register_call} with the one to use"
                )
            self.register(name, self._load(name, entries[0]))
        return self.registered[name]

    def get_class(self, name: str, requirement: ClassRequirement) -> ExtensionT:
        """Return a class that is not built in.

        Args:
            name: Value of the setting.
            requirement: Requirement of the class.

        Raises:
            ConfigError: As in `get`, or the class of an entry point does not fulfill the requirement.
        """
        value = self.get(name)
        if not requirement.is_met(value):
            reason = requirement.describe_fault(value)
            raise ConfigError(f"the class of the {self.kind} {quote(name)} is not {requirement.text}{reason}")
        return value

    def find_package(self, name: str) -> PackageVersion | None:
        """Return the installed package that provides an extension.

        Args:
            name: Value of the setting.

        Returns:
            The package and its version; None for a built-in name, and for an extension that no installed package
            provides, such as a class of a script, or of a package whose files were removed while it was in use.
        """
        if name in self.built_in:
            return None
        if self.packages.get(name) is None:
            self.packages[name] = self._search_package(name)
        return self.packages[name]

    def _search_package(self, name: str) -> PackageVersion | None:
        """Return the installed package that provides an extension; None without one."""
        module = _module_name(self.registered[name]) if name in self.registered else ""
        for entry in self.declared.get(name, ()):
            if entry.dist is not None and module in ("", entry.module):
                return _package_version(entry.dist)
        top_level = module.partition(".")[0]
        names = _packages_by_module().get(top_level, []) if top_level else []
        try:
            return _package_version(Distribution.from_name(names[0])) if names else None
        except PackageNotFoundError:
            return None

    def _load(self, name: str, entry: EntryPoint) -> ExtensionT:
        """Return the extension of an entry point; raise `ConfigError` if it cannot be loaded or is not an extension."""
        try:
            extension = entry.load()
        except (Exception, SystemExit) as error:  # the code of another package may raise anything
            origin = f"the entry point {quote(entry.value)} of the {self.kind} {quote(name)}"
            raise ConfigError(f"{origin} cannot be loaded: {abbreviate_reason(error)}") from error
        try:
            is_provided = self.is_extension(extension) and (self.own_name is None or self.own_name(extension) == name)
        except Exception:  # attributes of the object may raise anything
            is_provided = False
        if not is_provided:
            raise ConfigError(
                f"the entry point {quote(entry.value)} does not provide the {self.kind} {quote(name)}: expected "
                f"{self.provided}"
            )
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
            f"the entry points {quote(self.group)}, or call {self.register_call} first; known are "
            f"{join_choices(self.names()).replace(' or ', ' and ')}"
        )


def _describe_entry_point(entry: EntryPoint) -> str:
    """Return an entry point with its package: "my-attention 1.2 (my_attention:CosineAttention)"."""
    package = None if entry.dist is None else _package_version(entry.dist)
    return f"{package or 'a package'} ({quote(entry.value)})"


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
