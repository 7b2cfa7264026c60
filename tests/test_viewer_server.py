"""The server of the page, over a real socket."""

import gzip
import http.client
import json
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
from pellucid.training.run_folder import load, read_log
from pellucid.training.snapshots import read_snapshots
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.server import MAX_REQUEST_BYTES, background_server, create_app, open_socket


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 (whatever was answered)
        return json.loads(self.body)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with background_server(create_app(digits_page_data())) as address:
        found = urlsplit(address).port
        assert found
        yield found


def ask(port: int, path: str, body: bytes | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET" if body is None else "POST", path, body, told)
    response = connection.getresponse()
    answer = Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    connection.close()
    return answer


def post(port: int, path: str, question: object) -> Answer:
    return ask(port, path, json.dumps(question).encode(), Content_Type="application/json")


def test_page_and_contents_are_served(port: int) -> None:
    page = ask(port, "/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    assert b'id="app"' in page.body
    contents = ask(port, "/api/contents")
    assert contents.json["examples"][0]["text"] == digits_page_data().contents.examples[0].text
    small = ask(port, "/api/contents", Accept_Encoding="gzip")
    assert small.headers["content-encoding"] == "gzip" and gzip.decompress(small.body) == contents.body


def test_every_response_has_security_headers(port: int) -> None:
    for answer in (ask(port, "/"), ask(port, "/api/contents"), ask(port, "/none"), post(port, "/api/decode", {})):
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "connect-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_decode_endpoint_equals_the_predictor(port: int) -> None:
    answer = post(port, "/api/decode", {"text": "nine two"})
    (trace,) = load(digits_run().run).predict(["nine two"])
    assert answer.status == 200 and answer.json["traces"][0]["output"] == trace.output
    full = {"text": "nine two", "beam_size": 3, "num_outputs": 3, "lattice": True, "attribution": True, "states": True}
    told = post(port, "/api/decode", {**full, "gates": True}).json["traces"]
    assert len(told) == 3 and told[0]["lattice"]["symbols"] and told[0]["attribution"] and told[0]["states"]["gates"]


def test_other_host_names_are_refused(port: int) -> None:
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", f"[::1]:{port}"):
        assert ask(port, "/api/contents", Host=host).status == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "[", f"127.0.0.1@evil:{port}"):
        answer = ask(port, "/api/contents", Host=host)
        assert answer.status == 403 and "this machine" in answer.json["error"]


def test_other_origins_are_refused(port: int) -> None:
    own = f"http://127.0.0.1:{port}"
    question = json.dumps({"text": "one"}).encode()
    assert ask(port, "/api/decode", question, Content_Type="application/json", Origin=own).status == 200
    for origin in ("http://evil.example", "null", f"http://localhost:{port}", f"https://127.0.0.1:{port}"):
        assert ask(port, "/api/decode", question, Content_Type="application/json", Origin=origin).status == 403


def test_form_requests_are_refused(port: int) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert ask(port, "/api/decode", b'{"text": "one"}', Content_Type=kind).status == 415


def test_large_request_is_refused(port: int) -> None:
    answer = post(port, "/api/decode", {"text": "a" * MAX_REQUEST_BYTES})
    assert answer.status == 413 and "bytes" in answer.json["error"]


DEEP = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "question",
    [
        b"{",
        b"\xff",
        b'{"features": []}',
        b'{"text": 3}',
        b'{"text": "one", "texts": 1}',
        DEEP,
        DEEP.replace(b"text", b"zzz"),
    ],
)
def test_invalid_requests_are_refused(port: int, question: bytes) -> None:
    answer = ask(port, "/api/decode", question, Content_Type="application/json")
    assert answer.status == 400 and "invalid request" in answer.json["error"]


def test_incomplete_request_is_no_server_error(port: int, caplog: pytest.LogCaptureFixture) -> None:
    head = (
        b"POST /api/decode HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(head + b'{"tex')
    assert post(port, "/api/decode", {"text": "one"}).status == 200
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (json.dumps({"text": "one", "prefix": ["1"] * 5000 + ["⟨end⟩"]}).encode(), "prefix: expected at most"),
        (json.dumps({"text": "one", "prefix": ["1"] * 5000}).encode(), "prefix: the prefix and"),
        (json.dumps({"text": "one " * 5000}).encode(), "data.max_sequence_length"),
        (b'{"text": "one", "features": ["V"]}', "features"),
        (b'{"text": "one", "prefix": ["x"]}', "prefix: the model never writes"),
        (b'{"text": "one", "beam_size": 0}', "beam_size"),
        (b'{"text": "one", "num_outputs": 1000}', "outputs"),
        (b'{"text": "one", "run": 7}', "run"),
        (b'{"text": "one", "masked_positions": [3]}', "masked"),
        (b'{"text": "one", "masked_positions": [0, 1, 2]}', "masked"),
        (b'{"text": "one", "attention_overrides": [{"step": 0, "weights": [1]}]}', "painted"),
        (b'{"text": "one", "attention_overrides": [{"step": 0, "weights": [0, 0, 0]}]}', "painted"),
    ],
)
def test_rejected_request_has_status_200_and_an_error(port: int, question: bytes, words: str) -> None:
    answer = ask(port, "/api/decode", question, Content_Type="application/json")
    assert answer.status == 200 and list(answer.json) == ["error"] and words in answer.json["error"]
    changed = b'{"before": {"text": "one"}, "after": ' + question + b"}"
    answer = ask(port, "/api/what-if", changed, Content_Type="application/json")
    assert answer.status == 200 and list(answer.json) == ["error"]


def test_unknown_paths_have_status_404(port: int) -> None:
    assert ask(port, "/api/none").status == 404 and "error" in ask(port, "/api/none").json
    assert ask(port, "/api/decode").status == 405
    assert ask(port, "/api/training?since=x").status == 400
    assert ask(port, "/api/training?since=-1").status == 400


def test_what_if_endpoint_without_change(port: int) -> None:
    asked = {"text": "nine two"}
    answer = post(port, "/api/what-if", {"before": asked, "after": asked}).json
    assert answer["before"] == answer["after"]
    assert answer["rescored"]["output"] == answer["before"]["traces"][0]["output"]


def test_neighbors_endpoint(port: int) -> None:
    nearby = {"text": "nine two", "target": ["9", "2", "⟨end⟩"], "side": "decoder", "position": 1, "num_neighbors": 5}
    for wrong, words in (
        ({"num_neighbors": 0}, "num_neighbors"),
        ({"num_neighbors": 10**30}, "num_neighbors"),
        ({"target": ["1"] * 5000}, "target"),
    ):
        assert words in post(port, "/api/neighbors", {**nearby, **wrong}).json["error"]
    answer = post(port, "/api/neighbors", nearby).json
    assert len(answer["neighbors"]) == 5 and answer["num_searched"] > 40
    assert list(post(port, "/api/neighbors", {**nearby, "position": 9}).json) == ["error"]


def test_concurrent_requests_are_answered(port: int) -> None:
    texts = ["one", "nine two", "three three three", "six"] * 4
    answers = list[tuple[str, str]]()

    def one(text: str) -> None:
        answers.append((text, post(port, "/api/decode", {"text": text}).json["traces"][0]["output"]))

    threads = [Thread(target=one, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outputs = {trace.text: trace.output for trace in load(digits_run().run).predict(texts)}
    assert len(answers) == 16 and all(output == outputs[text] for text, output in answers)


def events_of(body: bytes) -> list[tuple[str, int | None, Any]]:
    """Name, number and data of each event of a stream."""
    found = []
    for part in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if line and not line.startswith(":"))
        if fields:
            number = int(fields["id"]) if "id" in fields else None
            found.append((fields["event"], number, json.loads(fields["data"])))
    return found


def test_finished_training_has_no_events(port: int) -> None:
    lines = len(read_log(digits_run().run))
    assert ask(port, f"/api/training?since={lines}").status == 204
    events = events_of(ask(port, "/api/training?since=0").body)
    assert [number for name, number, _ in events if name == "line"] == list(range(lines))


def test_training_events_are_streamed_once(tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")
    shown = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True)
    told = shown.contents.training
    assert told is not None and not told.finished
    with background_server(create_app(shown)) as address:
        found = urlsplit(address).port
        assert found
        answers = list[Answer]()
        since = f"/api/training?since={len(told.log)}"
        listener = Thread(target=lambda: answers.append(ask(found, since)), daemon=True)
        listener.start()
        resume_training(folder)
        listener.join(60)
        (answer,) = answers
        assert answer.headers["content-type"].startswith("text/event-stream")
        log, events = read_log(folder), events_of(answer.body)
        lines = [(number, data) for name, number, data in events if name == "line"]
        assert [number for number, _ in lines] == list(range(len(told.log), len(log)))
        assert [data for _, data in lines] == log[len(told.log) :]
        cards = [dict(data["facts"]) for name, _, data in events if name == "card"]
        assert cards[-1]["training"].startswith(f"{log[-1]['update']:,} updates")
        updates = [data["update"] for name, _, data in events if name == "frame"]
        assert [frame.update for frame in told.frames] + updates == [each.update for each in read_snapshots(folder)]
        again = ask(found, "/api/training?since=0", Last_Event_ID=str(len(log) - 2))
        assert [number for name, number, _ in events_of(again.body) if name == "line"] == [len(log) - 1]
        assert ask(found, "/api/contents").json["training"]["finished"] is True


def test_reload_loads_the_newest_checkpoint(tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")

    def shown() -> PageData:
        """The run as it is now."""
        return assemble_page(
            [open_run(folder, "run", "cpu", None)],
            [read_example_file(digits_run().files.valid, digits_run().config.data)],
            30,
            True,
        )

    with background_server(create_app(shown(), shown)) as address:
        found = urlsplit(address).port
        assert found
        before = ask(found, "/api/contents").json
        resume_training(folder)
        assert post(found, "/api/reload", {}).json == {"update": None}
        after = ask(found, "/api/contents").json
        assert after["training"]["finished"] and after["examples"] != before["examples"]
        assert before["page_id"] != after["page_id"]
        # A page of before is told, and is not answered by another model than it shows.
        body, own = b'{"text": "one two"}', {"Content_Type": "application/json"}
        assert "load the page again" in ask(found, "/api/decode", body, X_Page=before["page_id"], **own).json["error"]
        assert ask(found, "/api/decode", body, X_Page=after["page_id"], **own).json["text"] == "one two"
        assert "load the page again" in ask(found, "/api/export", b"{}", X_Page=before["page_id"], **own).json["error"]
        assert ask(found, "/api/export", b"{}", **own).json["examples"][0]["text"] == after["examples"][0]["text"]
    with background_server(create_app(shown())) as address:
        alone = urlsplit(address).port
        assert alone and "restart pellucid look" in post(alone, "/api/reload", {}).json["error"]


def test_first_checkpoint_is_loaded_when_available(tmp_path: Path) -> None:
    whole = make_interrupted_run(tmp_path / "whole")
    folder = make_run_without_model(tmp_path / "run", whole)
    with background_server(create_app(pending_page_data(folder), lambda: pending_page_data(folder))) as address:
        found = urlsplit(address).port
        assert found
        before = ask(found, "/api/contents").json
        assert (
            before["awaiting_model"]
            and before["title"] == "run on dev.tsv"
            and "examples of dev.tsv" in before["selection_note"]
        )
        assert "no model yet" in post(found, "/api/decode", {"text": "one"}).json["error"]
        copy_model_files(folder, whole)
        after = ask(found, "/api/contents").json
        assert not after["awaiting_model"] and len(after["examples"]) == 30 and after["title"] == "run on dev.tsv"
        (trace,) = load(folder).predict(["one"])
        assert post(found, "/api/decode", {"text": "one"}).json["traces"][0]["output"] == trace.output


def test_used_port_is_refused() -> None:
    with open_socket(0) as taken, pytest.raises(InputError, match="--port"):
        open_socket(taken.getsockname()[1])
    with pytest.raises(InputError, match="--port 70000"):
        open_socket(70_000)


SLOW = """
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


def test_shutdown_does_not_wait_for_responses() -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = urlsplit(process.stdout.readline().strip()).port
        assert found
        with socket.create_connection(("127.0.0.1", found), timeout=60) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert process.stdout.readline() == "asked\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        assert process.stdout.read() == "ended\n"


@pytest.mark.parametrize("number", ["1" * 5000, "-" + "1" * 4200, "9" * 30, str(2**63)])
def test_huge_numbers_are_refused(port: int, number: str) -> None:
    questions = {
        "/api/decode": [
            *(f'{{"text": "one", "{name}": NUMBER}}' for name in ("beam_size", "num_outputs", "run")),
            '{"text": "one", "masked_positions": [NUMBER]}',
            '{"text": "one", "attention_overrides": [{"step": NUMBER, "weights": [1, 0, 0]}]}',
        ],
        "/api/neighbors": [
            '{"text": "one", "target": ["1"], "side": "encoder", "position": NUMBER}',
            '{"text": "one", "target": ["1"], "side": "encoder", "position": 0, "count": NUMBER}',
        ],
    }
    for path, bodies in questions.items():
        for body in bodies:
            answer = ask(port, path, body.replace("NUMBER", number).encode(), Content_Type="application/json")
            assert answer.status < 500 and len(answer.body) < 300, (body, answer)
