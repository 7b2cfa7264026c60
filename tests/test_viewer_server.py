"""The server of the page answers requests over a real socket."""

import gzip
import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from page_data import (
    copy_model_files,
    digits_page_data,
    make_interrupted_run,
    make_run_without_model,
    pending_page_data,
    resume_training,
)
from trained_runs import digits_run

from pellucid.errors import InputError
from pellucid.run_folder.log import load_run_log, read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.training.snapshots import read_snapshots
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.server import MAX_REQUEST_BYTES, background_server, create_app, open_socket


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 (any JSON)
        return json.loads(self.body)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with background_server(create_app(digits_page_data())) as address:
        server_port = urlsplit(address).port
        assert server_port
        yield server_port


def send_request(port: int, path: str, body: bytes | None = None, **headers: str) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET" if body is None else "POST", path, body, request_headers)
    response = connection.getresponse()
    reply = Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    connection.close()
    return reply


def send_json(port: int, path: str, content: object) -> Reply:
    return send_request(port, path, json.dumps(content).encode(), Content_Type="application/json")


def test_page_and_contents_are_served(port: int) -> None:
    page = send_request(port, "/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    assert b'id="app"' in page.body
    contents = send_request(port, "/api/contents")
    assert contents.json["examples"][0]["text"] == digits_page_data().contents.examples[0].text
    small = send_request(port, "/api/contents", Accept_Encoding="gzip")
    assert small.headers["content-encoding"] == "gzip" and gzip.decompress(small.body) == contents.body


def test_every_response_has_security_headers(port: int) -> None:
    for reply in (
        send_request(port, "/"),
        send_request(port, "/api/contents"),
        send_request(port, "/none"),
        send_json(port, "/api/decode", {}),
    ):
        assert reply.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert "connect-src 'self'" in reply.headers["content-security-policy"]
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_decode_endpoint_equals_the_predictor(port: int) -> None:
    reply = send_json(port, "/api/decode", {"text": "nine two"})
    (trace,) = load(digits_run().run).predict(["nine two"])
    assert reply.status == 200 and reply.json["traces"][0]["output"] == trace.output
    request = {
        "text": "nine two",
        "beam_size": 3,
        "num_outputs": 3,
        "search_tree": True,
        "attribution": True,
        "states": True,
    }
    traces = send_json(port, "/api/decode", {**request, "gates": True}).json["traces"]
    assert (
        len(traces) == 3
        and traces[0]["search_tree"]["symbols"]
        and traces[0]["attribution"]
        and traces[0]["states"]["gates"]
    )


def test_other_host_names_are_refused(port: int) -> None:
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", f"[::1]:{port}"):
        assert send_request(port, "/api/contents", Host=host).status == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "[", f"127.0.0.1@evil:{port}"):
        reply = send_request(port, "/api/contents", Host=host)
        assert reply.status == 403 and "this machine" in reply.json["error"]


def test_other_origins_are_refused(port: int) -> None:
    own_origin = f"http://127.0.0.1:{port}"
    body = json.dumps({"text": "one"}).encode()
    assert send_request(port, "/api/decode", body, Content_Type="application/json", Origin=own_origin).status == 200
    for origin in ("http://evil.example", "null", f"http://localhost:{port}", f"https://127.0.0.1:{port}"):
        assert send_request(port, "/api/decode", body, Content_Type="application/json", Origin=origin).status == 403


def test_form_requests_are_refused(port: int) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert send_request(port, "/api/decode", b'{"text": "one"}', Content_Type=kind).status == 415


def test_large_request_is_refused(port: int) -> None:
    reply = send_json(port, "/api/decode", {"text": "a" * MAX_REQUEST_BYTES})
    assert reply.status == 413 and "bytes" in reply.json["error"]


NESTED_REQUEST = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff",
        b'{"features": []}',
        b'{"text": 3}',
        b'{"text": "one", "texts": 1}',
        NESTED_REQUEST,
        NESTED_REQUEST.replace(b"text", b"zzz"),
    ],
)
def test_invalid_requests_are_refused(port: int, body: bytes) -> None:
    reply = send_request(port, "/api/decode", body, Content_Type="application/json")
    assert reply.status == 400 and "invalid request" in reply.json["error"]


def test_incomplete_request_is_no_server_error(port: int, caplog: pytest.LogCaptureFixture) -> None:
    head = (
        b"POST /api/decode HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(head + b'{"tex')
    assert send_json(port, "/api/decode", {"text": "one"}).status == 200
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (json.dumps({"text": "one", "prefix": ["1"] * 5000 + ["⟨end⟩"]}).encode(), "prefix: expected at most"),
        (json.dumps({"text": "one", "prefix": ["1"] * 5000}).encode(), "prefix: the prefix and"),
        (json.dumps({"text": "one " * 5000}).encode(), "data.max_sequence_length"),
        (b'{"text": "one", "features": ["V"]}', "features"),
        (b'{"text": "one", "prefix": ["x"]}', "prefix: the model never writes"),
        (b'{"text": "one", "beam_size": 0}', "beam_size"),
        (b'{"text": "one", "num_outputs": 1000}', "outputs"),
        (b'{"text": "one", "run": 7}', "run"),
        (b'{"text": "one", "masked_positions": [3]}', "masked_positions: "),
        (b'{"text": "one", "masked_positions": [0, 1, 2]}', "masked_positions: "),
        (b'{"text": "one", "forced_attention": [{"step": 0, "weights": [1]}]}', "forced_attention"),
        (b'{"text": "one", "forced_attention": [{"step": 0, "weights": [0, 0, 0]}]}', "forced_attention"),
    ],
)
def test_rejected_request_has_status_200_and_an_error(port: int, body: bytes, message: str) -> None:
    reply = send_request(port, "/api/decode", body, Content_Type="application/json")
    assert reply.status == 200 and list(reply.json) == ["error"] and message in reply.json["error"]
    changed = b'{"before": {"text": "one"}, "after": ' + body + b"}"
    reply = send_request(port, "/api/what-if", changed, Content_Type="application/json")
    assert reply.status == 200 and list(reply.json) == ["error"]


def test_unknown_paths_have_status_404(port: int) -> None:
    assert send_request(port, "/api/none").status == 404 and "error" in send_request(port, "/api/none").json
    assert send_request(port, "/api/decode").status == 405
    assert send_request(port, "/api/training?since=x").status == 400
    assert send_request(port, "/api/training?since=-1").status == 400


def test_what_if_endpoint_without_change(port: int) -> None:
    request = {"text": "nine two"}
    reply = send_json(port, "/api/what-if", {"before": request, "after": request}).json
    assert reply["before"] == reply["after"]
    assert reply["rescored"]["output"] == reply["before"]["traces"][0]["output"]


def test_neighbors_endpoint(port: int) -> None:
    request = {"text": "nine two", "target": ["9", "2", "⟨end⟩"], "side": "decoder", "position": 1, "num_neighbors": 5}
    for invalid, message in (
        ({"num_neighbors": 0}, "num_neighbors"),
        ({"num_neighbors": 10**30}, "num_neighbors"),
        ({"target": ["1"] * 5000}, "target"),
    ):
        assert message in send_json(port, "/api/neighbors", {**request, **invalid}).json["error"]
    reply = send_json(port, "/api/neighbors", request).json
    assert len(reply["neighbors"]) == 5 and reply["num_searched"] > 40
    assert list(send_json(port, "/api/neighbors", {**request, "position": 9}).json) == ["error"]


def test_concurrent_requests_are_answered(port: int) -> None:
    texts = ["one", "nine two", "three three three", "six"] * 4
    replies = list[tuple[str, str]]()

    def decode_text(text: str) -> None:
        replies.append((text, send_json(port, "/api/decode", {"text": text}).json["traces"][0]["output"]))

    threads = [Thread(target=decode_text, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outputs = {trace.text: trace.output for trace in load(digits_run().run).predict(texts)}
    assert len(replies) == 16 and all(output == outputs[text] for text, output in replies)


def parse_events(body: bytes) -> list[tuple[str, int | None, Any]]:
    """Return the name, number and data of each event of a stream."""
    events = []
    for part in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if line and not line.startswith(":"))
        if fields:
            number = int(fields["id"]) if "id" in fields else None
            events.append((fields["event"], number, json.loads(fields["data"])))
    return events


def test_finished_training_has_no_events(port: int) -> None:
    lines = len(read_log(digits_run().run))
    assert send_request(port, f"/api/training?since={lines}").status == 204
    events = parse_events(send_request(port, "/api/training?since=0").body)
    assert [number for name, number, _ in events if name == "line"] == list(range(lines))


def test_the_events_of_another_run_are_not_sent_to_a_page(port: int) -> None:
    """Regression test: a page whose server was started again with another run drew the events of both."""
    page = send_request(port, "/api/contents").json["page_id"]
    assert (
        page
        and [name for name, *_ in parse_events(send_request(port, f"/api/training?since=0&page={page}").body)][-1]
        != "failed"
    )
    for since in (0, 10**6):
        reply = send_request(port, f"/api/training?since={since}&page=other")
        assert reply.headers["content-type"].startswith("text/event-stream")
        message = "The server now shows another model or file than this page: load the page again."
        assert parse_events(reply.body) == [("failed", None, message)]


@pytest.mark.slow
def test_training_events_are_streamed_once(tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")
    shown = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)
    training = shown.contents.training
    assert training is not None and not training.finished
    with background_server(create_app(shown)) as address:
        server_port = urlsplit(address).port
        assert server_port
        replies = list[Reply]()
        since = f"/api/training?since={len(training.log)}"
        listener = Thread(target=lambda: replies.append(send_request(server_port, since)), daemon=True)
        listener.start()
        resume_training(folder)
        listener.join(60)
        (reply,) = replies
        assert reply.headers["content-type"].startswith("text/event-stream")
        log, events = read_log(folder), parse_events(reply.body)
        lines = [(number, data) for name, number, data in events if name == "line"]
        assert lines == list(enumerate(log))[len(training.log) :]
        assert [data["event"] for _, data in lines][-2:] == ["stopped", "confidence"]
        cards = [dict(data["facts"]) for name, _, data in events if name == "card"]
        (stopped,) = [record for record in log if record["event"] == "stopped"]
        assert cards[-1]["training"].startswith(f"{stopped['update']:,} updates")
        updates = [data["update"] for name, _, data in events if name == "frame"]
        assert [frame.update for frame in training.frames] + updates == [each.update for each in read_snapshots(folder)]
        again = send_request(server_port, "/api/training?since=0", Last_Event_ID=str(len(log) - 2))
        assert [number for name, number, _ in parse_events(again.body) if name == "line"] == [len(log) - 1]
        assert send_request(server_port, "/api/contents").json["training"]["finished"] is True


def test_a_run_folder_removed_while_the_page_is_open_ends_the_stream_with_a_message(tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")
    page_data = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)
    shutil.rmtree(folder)
    with background_server(create_app(page_data)) as address:
        server_port = urlsplit(address).port
        assert server_port
        reply = send_request(server_port, "/api/training?since=0")
        assert parse_events(reply.body) == [
            ("failed", None, f"{folder} was removed or renamed: open the page of the new folder")
        ]


def test_a_run_folder_replaced_while_the_page_is_open_is_reported(tmp_path: Path) -> None:
    """Regression test: the page showed the model of one run with the training of the other."""
    folder = make_interrupted_run(tmp_path / "run")
    page_data = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)
    log = folder / "log.jsonl"
    fingerprint = load_run_log(folder).fingerprint
    log.write_text(log.read_text("utf-8").replace(fingerprint, "0" * len(fingerprint)), "utf-8")
    message = f"{folder} holds another training now (fingerprint): open its page again"
    with background_server(create_app(page_data)) as address:
        server_port = urlsplit(address).port
        assert fingerprint and server_port
        assert send_request(server_port, "/api/contents").json["error"] == message
        assert parse_events(send_request(server_port, "/api/training?since=0").body)[-1] == ("failed", None, message)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["snapshot", "log", "model"])
def test_a_file_damaged_while_the_page_is_open_ends_the_stream_with_its_message(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_interrupted_run(tmp_path / "run")
    page_data = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)
    snapshot = sorted((folder / "snapshots").iterdir())[0]
    path = {"snapshot": snapshot, "log": folder / "log.jsonl", "model": folder / "model.safetensors"}[name]
    path.unlink()
    path.mkdir()
    with background_server(create_app(page_data)) as address:
        server_port = urlsplit(address).port
        assert server_port
        for _ in range(2):
            reply = send_request(server_port, "/api/training?since=0")
            assert reply.headers["content-type"].startswith("text/event-stream")
            kind, _, message = parse_events(reply.body)[-1]
            assert kind == "failed" and str(path) in message and "is a directory" in message
    assert caplog.records == []


@pytest.mark.slow
def test_reload_loads_the_newest_checkpoint(tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")

    def assemble_current_page() -> PageData:
        """Return the page data of the current run."""
        return assemble_page(
            [open_run(folder, "run", "cpu", None)],
            [read_example_file(digits_run().files.valid, digits_run().config.data)],
            30,
            True,
        )

    with background_server(create_app(assemble_current_page(), assemble_current_page)) as address:
        server_port = urlsplit(address).port
        assert server_port
        before = send_request(server_port, "/api/contents").json
        resume_training(folder)
        assert send_json(server_port, "/api/reload", {}).json == {"update": None}
        after = send_request(server_port, "/api/contents").json
        assert after["training"]["finished"] and after["examples"] != before["examples"]
        assert before["page_id"] != after["page_id"]
        # A page with the previous model gets an error instead of results of the new model.
        body, headers = b'{"text": "one two"}', {"Content_Type": "application/json"}
        assert (
            "load the page again"
            in send_request(server_port, "/api/decode", body, X_Page=before["page_id"], **headers).json["error"]
        )
        assert (
            send_request(server_port, "/api/decode", body, X_Page=after["page_id"], **headers).json["text"] == "one two"
        )
        assert (
            "load the page again"
            in send_request(server_port, "/api/export", b"{}", X_Page=before["page_id"], **headers).json["error"]
        )
        assert (
            send_request(server_port, "/api/export", b"{}", **headers).json["examples"][0]["text"]
            == after["examples"][0]["text"]
        )
    with background_server(create_app(assemble_current_page())) as address:
        other_port = urlsplit(address).port
        assert other_port and "restart pellucid look" in send_json(other_port, "/api/reload", {}).json["error"]


def test_first_checkpoint_is_loaded_when_available(tmp_path: Path) -> None:
    trained = make_interrupted_run(tmp_path / "whole")
    folder = make_run_without_model(tmp_path / "run", trained)
    with background_server(create_app(pending_page_data(folder), lambda: pending_page_data(folder))) as address:
        server_port = urlsplit(address).port
        assert server_port
        before = send_request(server_port, "/api/contents").json
        assert (
            before["awaiting_model"]
            and before["title"] == "run on dev.tsv"
            and "examples of dev.tsv" in before["selection_note"]
        )
        assert "no model yet" in send_json(server_port, "/api/decode", {"text": "one"}).json["error"]
        copy_model_files(folder, trained)
        after = send_request(server_port, "/api/contents").json
        assert not after["awaiting_model"] and len(after["examples"]) == 30 and after["title"] == "run on dev.tsv"
        (trace,) = load(folder).predict(["one"])
        assert send_json(server_port, "/api/decode", {"text": "one"}).json["traces"][0]["output"] == trace.output


def test_used_port_is_refused() -> None:
    with open_socket(0) as used_socket, pytest.raises(InputError, match="--port"):
        open_socket(used_socket.getsockname()[1])
    with pytest.raises(InputError, match="--port 70000"):
        open_socket(70_000)


SLOW_SERVER = """
import time
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from pellucid.viewer.server import exit_without_waiting, open_socket, serve_until_interrupted, server_url

def slow(request):
    print("asked", flush=True)
    time.sleep(30)
    return PlainTextResponse("late")

opened = open_socket(0)
print(server_url(opened), flush=True)
serve_until_interrupted(Starlette(routes=[Route("/", slow)]), opened)
print("ended")
exit_without_waiting()
"""


@pytest.mark.slow
def test_shutdown_does_not_wait_for_responses() -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW_SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server_port = urlsplit(process.stdout.readline().strip()).port
        assert server_port
        with socket.create_connection(("127.0.0.1", server_port), timeout=60) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert process.stdout.readline() == "asked\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        assert process.stdout.read() == "ended\n"


@pytest.mark.parametrize("number", ["1" * 5000, "-" + "1" * 4200, "9" * 30, str(2**63)])
def test_huge_numbers_are_refused(port: int, number: str) -> None:
    request_bodies = {
        "/api/decode": [
            *(f'{{"text": "one", "{name}": NUMBER}}' for name in ("beam_size", "num_outputs", "run")),
            '{"text": "one", "masked_positions": [NUMBER]}',
            '{"text": "one", "forced_attention": [{"step": NUMBER, "weights": [1, 0, 0]}]}',
        ],
        "/api/neighbors": [
            '{"text": "one", "target": ["1"], "side": "encoder", "position": NUMBER}',
            '{"text": "one", "target": ["1"], "side": "encoder", "position": 0, "count": NUMBER}',
        ],
    }
    for path, bodies in request_bodies.items():
        for body in bodies:
            reply = send_request(port, path, body.replace("NUMBER", number).encode(), Content_Type="application/json")
            assert reply.status < 500 and len(reply.body) < 300, (body, reply)
