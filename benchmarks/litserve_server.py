"""A run behind LitServe, with the requests and responses of `pellucid serve`, for `benchmarks/serving.py --peer`.

    python benchmarks/litserve_server.py RUN PORT [--batch-timeout 0.005]

LitServe (pip install litserve) forms the batches: up to 256 requests, or those that arrive within the time. The model
is the one of `pellucid.load`, in one worker process with one thread.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import litserve

import pellucid
from pellucid.model.device import use_threads


class PredictorAPI(litserve.LitAPI):  # type: ignore[misc,unused-ignore] # a class without types
    """Operation predict: one row per request."""

    run: str

    def setup(self, device: str) -> None:
        """Load the model in the worker process, and decode once."""
        use_threads(1)
        self.predictor = pellucid.load(self.run)
        self.predictor.predict(["a"])

    def decode_request(self, request: dict[str, Any]) -> str:
        """Return the source of a request."""
        source: str = request["rows"][0]["source"]
        return source

    def batch(self, inputs: Sequence[str]) -> list[str]:
        """Return the sources of a batch."""
        return list(inputs)

    def predict(self, inputs: list[str]) -> list[tuple[str, float]]:
        """Return the output and the score of each source."""
        return [(trace.output, trace.score) for trace in self.predictor.predict(inputs)]

    def unbatch(self, output: list[tuple[str, float]]) -> list[tuple[str, float]]:
        """Return the outputs one by one."""
        return output

    def encode_response(self, output: tuple[str, float]) -> dict[str, object]:
        """Return a response."""
        return {"model": "run", "results": [{"output": output[0], "score": output[1], "finished": True}]}


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("port", type=int)
    parser.add_argument("--batch-timeout", type=float, default=0.005)
    args = parser.parse_args()
    api = PredictorAPI(max_batch_size=256, batch_timeout=args.batch_timeout, api_path="/v1/predict")
    api.run = args.run
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=30)
    server.run(host="127.0.0.1", port=args.port, generate_client_file=False, log_level="error")


if __name__ == "__main__":
    main()
