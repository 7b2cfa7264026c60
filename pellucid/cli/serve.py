"""Subcommand serve: pellucid serve RUN [RUN ...] [--host HOST] [--port PORT] [--unix-socket PATH]"""

import ipaddress
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pellucid.cli.arguments import parse_arguments
from pellucid.errors import InputError, quote
from pellucid.files import read_bytes

TOKEN_VARIABLE = "PELLUCID_TOKEN"
"""Environment variable that holds the token."""
MIN_TOKEN_LENGTH = 16
MAX_TOKEN_BYTES = 4096
POSITIVE_FLAGS = (
    *("max_rows", "max_symbols", "max_body_bytes", "max_queued_rows", "timeout", "drain_timeout", "workers"),
    "threads",
)


@dataclass(frozen=True)
class ServeArguments:
    """Answer requests over HTTP by the models of trained runs: predict, nbest, score, attention, align, tag, classify.

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
    allow_host: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")] = ()
    """Further names that the Host header may have. On this machine: 127.0.0.1, localhost and ::1 only, unless names
    are given; with another --host: all names, unless names are given."""
    allow_origin: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ORIGIN")] = ()
    """Origins whose pages may call the service, such as https://example.org. None by default."""
    log_format: Literal["text", "json"] = "text"
    """Format of the log on standard error. text: messages; json: also one line per request."""
    workers: int = 1
    """Number of worker processes of each model, 1 or more."""
    threads: int = 1
    """Number of threads of each worker process, 1 or more."""
    max_rows: int = 256
    """Maximum number of rows of a request, and of rows decoded together."""
    max_symbols: int = 1000
    """Maximum number of symbols of a source or target."""
    max_body_bytes: int = 1048576
    """Maximum size of a request in bytes."""
    max_queued_rows: int = 1024
    """Maximum number of rows that wait for each model; further requests receive status 503."""
    timeout: float = 30.0
    """Seconds from the arrival of a request to its answer; later, status 504."""
    drain_timeout: float = 30.0
    """Seconds for which a shutdown waits for open requests."""
    reload_interval: float = 2.0
    """Seconds between two looks for changes of the run folders; 0: none."""


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

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
    _serve(args, folders, token)
    return 0


def _check_arguments(args: ServeArguments) -> None:
    """Raise `InputError` for an argument out of range."""
    for name in POSITIVE_FLAGS:
        if not getattr(args, name) > 0:
            raise InputError(f"--{name.replace('_', '-')}: expected a number above 0, got {getattr(args, name)}")
    if not args.reload_interval >= 0:
        raise InputError(f"--reload-interval: expected 0 or more, got {args.reload_interval}")


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
            name, folder = Path(argument).resolve().name, argument
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


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _serve(args: ServeArguments, folders: Mapping[str, Path], token: str) -> None:
    """Open the socket, and serve."""
    from pellucid.http_requests import LOOPBACK_HOSTS, open_tcp_socket
    from pellucid.serving.access import AccessRules
    from pellucid.serving.application import PredictionService, create_app
    from pellucid.serving.metrics import ServiceMetrics
    from pellucid.serving.model_service import ModelService
    from pellucid.serving.options import ServiceOptions
    from pellucid.serving.server import configure_log, open_unix_socket, remove_socket, serve

    names = ServiceOptions.__dataclass_fields__
    options, metrics = ServiceOptions(**{name: getattr(args, name) for name in names}), ServiceMetrics()
    models = {name: ModelService(name, folder, options, metrics) for name, folder in folders.items()}
    service = PredictionService(models, metrics)
    local = LOOPBACK_HOSTS if args.unix_socket is None and _is_loopback(args.host) else ()
    rules = AccessRules(frozenset((*local, *args.allow_host)), frozenset(args.allow_origin), token)
    configure_log(args.log_format == "json")
    if args.unix_socket is None:
        server_socket = open_tcp_socket(args.host, args.port)
        address = f"http://{f'[{args.host}]' if ':' in args.host else args.host}:{server_socket.getsockname()[1]}/"
    else:
        server_socket, address = open_unix_socket(args.unix_socket), str(args.unix_socket)
    print(address, flush=True)
    try:
        serve(create_app(service, rules), service, server_socket, args.drain_timeout)
    finally:
        server_socket.close()
        if args.unix_socket is not None:
            remove_socket(args.unix_socket)
    if service.start_error is not None:
        raise service.start_error
    logging.getLogger("pellucid.serving").info("service stopped")
