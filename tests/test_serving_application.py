"""Start and stop of the service, and its OpenAPI document."""

import asyncio
from pathlib import Path

import pytest
from service_process import run_coroutine
from starlette.applications import Starlette

from pellucid.errors import InputError
from pellucid.serving.application import PredictionService
from pellucid.serving.metrics import ServiceMetrics
from pellucid.serving.model_service import ModelService
from pellucid.serving.openapi import openapi_document
from pellucid.serving.options import ServiceOptions
from pellucid.serving.schema import OPERATIONS


class StartedModel(ModelService):
    """Model without workers, whose loading takes a time or fails."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        super().__init__("m", Path("run"), ServiceOptions(), ServiceMetrics())
        self.seconds, self.error, self.calls = seconds, error, list[str]()

    async def start(self) -> None:
        self.calls.append("start")
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        self.calls.append("loaded")

    async def stop(self) -> None:
        self.calls.append("stop")


def test_models_are_loaded_at_the_same_time() -> None:
    async def run() -> None:
        models = [StartedModel(0.3) for _ in range(20)]
        service = PredictionService({f"{index}": model for index, model in enumerate(models)})
        async with asyncio.timeout(5), service.lifespan(Starlette()):
            assert service.state == "ok" and all(model.calls == ["start", "loaded"] for model in models)
        assert all(model.calls[-1] == "stop" for model in models)

    run_coroutine(run())


def test_a_stop_ends_the_loading_and_the_state_stays() -> None:
    """Regression test: the service loaded its models to the end, and then was "ok" again."""

    async def run() -> None:
        model = StartedModel(1000)
        service = PredictionService({"m": model})
        asyncio.get_running_loop().call_later(0.05, service.request_stop)
        async with asyncio.timeout(20), service.lifespan(Starlette()):
            assert service.state == "stopping" and not service.is_ready and service.start_error is None
        assert model.calls == ["start", "stop"]
        early = StartedModel(0)
        service = PredictionService({"m": early})
        service.request_stop()
        async with service.lifespan(Starlette()):
            assert service.state == "stopping"
        assert early.calls == ["stop"]

    run_coroutine(run())


@pytest.mark.parametrize("error", [InputError("no such folder"), RuntimeError("wrong")])
def test_the_reason_of_a_failed_start_is_kept(error: Exception) -> None:
    async def run() -> None:
        models = {"good": StartedModel(1000), "bad": StartedModel(0, error)}
        service = PredictionService(models)
        with pytest.raises(type(error)):
            async with asyncio.timeout(20), service.lifespan(Starlette()):
                raise AssertionError("the service was started")
        assert service.start_error is error and all(model.calls[-1] == "stop" for model in models.values())

    run_coroutine(run())


def test_the_openapi_document_has_all_operations_and_the_errors_of_each_path() -> None:
    paths = openapi_document()["paths"]
    assert {f"/v1/{name}" for name in OPERATIONS} < {*paths}
    for name in OPERATIONS:
        responses = paths[f"/v1/{name}"]["post"]["responses"]
        assert {"200", "400", "401", "403", "404", "409", "413", "415", "500", "503", "504"} == {*responses}
    assert "queue is full" in paths["/v1/predict"]["post"]["responses"]["503"]["description"]
    assert "401" in paths["/v1/models"]["get"]["responses"] and "401" not in paths["/health"]["get"]["responses"]
