"""Subcommand serve: pellucid serve RUN [RUN ...] [--host HOST] [--port PORT] [--unix-socket PATH]"""

import ipaddress
import logging
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pellucid.argument_checks import replace_surrogates
from pellucid.cli.arguments import parse_arguments
from pellucid.cli.sources import print_result
from pellucid.errors import InputError, quote
from pellucid.files import read_bytes
from pellucid.serving.options import ServiceOptions

LOGGER = logging.getLogger("pellucid.serving")
TOKEN_VARIABLE = "PELLUCID_TOKEN"
"""Environment variable that holds the token."""
MIN_TOKEN_LENGTH = 16
MAX_TOKEN_BYTES = 4096
MAX_SECONDS = 1_000_000
"""Maximum of the flags in seconds."""
ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d+)?|https?://\[[0-9a-f:]+\](:\d+)?")
"""Form of the Origin header of a page, in lower case."""
POSITIVE_FLAGS = (
    *("max_rows", "max_symbols", "max_body_bytes", "max_queued_rows", "timeout", "drain_timeout", "workers"),
    "threads",
)


@dataclass(frozen=True)
class ServeArguments:
    """Answer HTTP requests with the models of trained runs: predict, nbest, score, attention, align, tag, classify.

    The page at the address that is printed shows examples.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME=]RUN ...")]
    """Run folders, each a model with the name of its folder or with the given NAME. The first is the default model."""
    host: str = "127.0.0.1"
    """Address to listen at. Other addresses than those of this machine require a token."""
    port: int = 8000
    """Port, 0 to 65535; 0: any free port."""
    unix_socket: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Listen at a unix socket instead of an address."""
    token_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File that holds the token, of 16 characters or more. Requests then need "Authorization: Bearer TOKEN". The
    environment variable PELLUCID_TOKEN is an alternative."""
    allow_host: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")] = ()
    """Further name that the Host header may have; may be repeated. On this machine: 127.0.0.1, localhost and ::1 only,
    unless names are given; with another --host: all names, unless names are given."""
    allow_origin: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="ORIGIN")] = ()
    """Origin whose pages may call the service, such as https://example.org; may be repeated. None by default."""
    log_format: Literal["text", "json"] = "text"
    """Format of the log on standard error. text: messages; json: also one line per request."""
    workers: int = ServiceOptions.workers
    """Number of worker processes of each model, 1 or more."""
    threads: int = ServiceOptions.threads
    """Number of threads of each worker process, 1 or more."""
    max_rows: int = ServiceOptions.max_rows
    """Maximum number of rows of a request, and of rows decoded together."""
    max_symbols: int = ServiceOptions.max_symbols
    """Maximum number of symbols of a source or target."""
    max_body_bytes: int = ServiceOptions.max_body_bytes
    """Maximum size of a request in bytes."""
    max_queued_rows: int = ServiceOptions.max_queued_rows
    """Maximum number of rows that wait for each model, --max-rows or more; further requests receive status 503."""
    timeout: float = ServiceOptions.timeout
    """Seconds from the arrival of a request to its answer; later, status 504."""
    drain_timeout: float = ServiceOptions.drain_timeout
    """Seconds for which a shutdown waits for open requests."""
    reload_interval: float = ServiceOptions.reload_interval
    """Polling interval of the run folders, in seconds; 0 disables reloading."""


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code: 0, or 1 after an error of this program at the start.

    Raises:
        InputError: An argument, a run folder or the token is invalid, or the address cannot be used.
    """
    args = parse_arguments(ServeArguments, "serve", arguments)
    _check_arguments(args)
    folders, token = name_models(args.runs), read_token(args.token_file)
    is_local = args.unix_socket is not None or _is_loopback(args.host)
    if not is_local and not token:
        raise InputError(
            f"--host {args.host}: other machines can reach this address: give --token-file, or {TOKEN_VARIABLE}"
        )
    return _serve(args, folders, token)


def _check_arguments(args: ServeArguments) -> None:
    """Raise `InputError` for an argument out of range."""
    for name in POSITIVE_FLAGS:
        if not getattr(args, name) > 0:
            raise InputError(f"--{name.replace('_', '-')}: expected a number above 0, got {getattr(args, name)}")
    for name in ("timeout", "drain_timeout", "reload_interval"):
        if not 0 <= getattr(args, name) <= MAX_SECONDS:
            expected = f"expected 0 to {MAX_SECONDS:,} seconds"
            raise InputError(f"--{name.replace('_', '-')}: {expected}, got {getattr(args, name)}")
    if args.max_queued_rows < args.max_rows:
        raise InputError(
            f"--max-queued-rows {args.max_queued_rows}: expected at least --max-rows ({args.max_rows}), since a larger "
            "request would never have room"
        )


def name_models(runs: tuple[str, ...]) -> dict[str, Path]:
    """Return the run folder of each model.

    Args:
        runs: Arguments RUN or NAME=RUN.

    Raises:
        InputError: There is no argument, or two models have the same name.
    """
    folders = dict[str, Path]()
    for argument in runs:
        name, separator, folder = argument.partition("=")
        if not separator or Path(argument).exists():
            name, folder = Path(argument).absolute().name or Path(argument).resolve().name, argument
        name = replace_surrogates(name)  # it is part of JSON and HTML
        if name in folders:
            raise InputError(f"two models have the name {quote(name)}: give NAME=RUN")
        folders[name] = Path(folder)
    if not folders:
        raise InputError("the folder of a run is required: pellucid serve RUN")
    return folders


def read_token(path: Path | None) -> str:
    """Return the token of the service; "" if there is none.

    Args:
        path: File of the token; None for the environment variable.

    Raises:
        InputError: The file cannot be read, or the token is too short or has other characters than printable ASCII.
    """
    place = f"{TOKEN_VARIABLE}" if path is None else f"{path}"
    token = os.environ.get(TOKEN_VARIABLE, "")
    if path is not None:
        token = read_bytes(path, InputError, MAX_TOKEN_BYTES, regular=False).decode("utf-8", "replace").strip()
    elif not token:
        return ""
    if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"{place}: expected a token of {MIN_TOKEN_LENGTH} printable ASCII characters or more")
    return token


def read_allowed_hosts(names: Sequence[str]) -> frozenset[str]:
    """Return accepted names of the Host header, in lower case.

    Args:
        names: Arguments of --allow-host.

    Raises:
        InputError: One is not a name or an address, or has a port.
    """
    from pellucid.http_requests import host_name

    for name in names:
        if host_name(f"//{f'[{name}]' if ':' in name else name}") != name.lower() or not name:
            raise InputError(f"--allow-host {quote(name)}: expected a name or an address without port")
    return frozenset(name.lower() for name in names)


def read_allowed_origins(origins: Sequence[str]) -> frozenset[str]:
    """Return accepted values of the Origin header, in lower case.

    Args:
        origins: Arguments of --allow-origin.

    Raises:
        InputError: One has another form than that of browsers.
    """
    for origin in origins:
        if ORIGIN.fullmatch(origin.lower()) is None:
            expected = "expected http:// or https://, a name and no path, such as https://example.org"
            raise InputError(f"--allow-origin {quote(origin)}: {expected}")
    return frozenset(origin.lower() for origin in origins)


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _serve(args: ServeArguments, folders: Mapping[str, Path], token: str) -> int:
    """Serve, and return the exit code."""
    from pellucid.http_requests import LOOPBACK_HOSTS
    from pellucid.serving.access import AccessRules
    from pellucid.serving.application import PredictionService, create_app
    from pellucid.serving.log_format import configure_log
    from pellucid.serving.metrics import ServiceMetrics
    from pellucid.serving.model_service import ModelService
    from pellucid.serving.server import serve

    names = ServiceOptions.__dataclass_fields__
    options, metrics = ServiceOptions(**{name: getattr(args, name) for name in names}), ServiceMetrics()
    local = (*LOOPBACK_HOSTS, args.host) if args.unix_socket is None and _is_loopback(args.host) else ()
    hosts, origins = read_allowed_hosts(args.allow_host), read_allowed_origins(args.allow_origin)
    models = {name: ModelService(name, folder, options, metrics) for name, folder in folders.items()}
    service = PredictionService(models, options, metrics)
    app = create_app(service, AccessRules(hosts | {*local}, origins, token))
    configure_log(args.log_format == "json")
    with _open_socket(args) as server_socket:
        serve(app, service, server_socket)
    if isinstance(service.start_error, InputError):
        raise service.start_error
    if service.start_error is not None:
        LOGGER.error("the service cannot be started", exc_info=service.start_error)
        return 1
    LOGGER.info("service stopped")
    return 0


@contextmanager
def _open_socket(args: ServeArguments) -> Iterator[socket.socket]:
    """Open the socket for the block, and print its address."""
    from pellucid.http_requests import open_tcp_socket
    from pellucid.serving.server import FileIdentity, open_unix_socket, remove_socket

    if args.unix_socket is None:
        with open_tcp_socket(args.host, args.port) as server_socket:
            name = f"[{args.host}]" if ":" in args.host else args.host
            print(f"http://{name}:{server_socket.getsockname()[1]}/", flush=True)
            yield server_socket
        return
    with open_unix_socket(args.unix_socket) as server_socket:
        identity = FileIdentity.of(args.unix_socket)
        try:
            print_result(str(args.unix_socket))
            yield server_socket
        finally:
            server_socket.close()
            remove_socket(args.unix_socket, identity)
