"""Flower's simulation runtime (Ray, one client actor per core) on one workload, spoken
to through `protocol`.

Its idiom: a `ServerApp` whose main function starts a `FedAvg` strategy, a `ClientApp`
that rebuilds the model from the message, trains, and answers with arrays and the number
of examples. The server's main function is also where the runner's lines are read, so
rounds pause and go on without a new start of Ray.
"""

import os
import sys

# Read at import. Ray runs its workers at niceness 15 by default, which would cost
# Flower time on a busy machine.
os.environ.update(
    FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0"
)

import ray
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from peers.protocol import arguments, channel, on_sigterm, serve
from workloads import Workload, probe_loss, tensors, train

SETUPS = {"ray2": 2}


def client_app(w: Workload, seed: int) -> ClientApp:
    """Build the client: message in, trained arrays out. The data stay in the actor's
    process.
    """
    app = ClientApp()

    @app.train()
    def train_client(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        client = context.node_config["partition-id"]
        model = w.make_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = tensors(w, seed)
        order = torch.Generator().manual_seed(torch.seed() % 2**31)
        train(w, model, x[client], y[client], order)
        metrics = MetricRecord({"num-examples": w.samples})
        return Message(
            RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}),
            reply_to=message,
        )

    return app


def server_app(w: Workload, seed: int, send) -> ServerApp:
    """Build the server: it runs blocks of rounds as the runner asks."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        torch.set_num_threads(1)
        model = w.model(seed)
        strategy = FedAvg(
            fraction_train=0.0001,
            min_train_nodes=w.sampled,
            min_available_nodes=w.clients,
            fraction_evaluate=0.0,
        )
        arrays = ArrayRecord(model.state_dict())

        def rounds(n: int) -> None:
            nonlocal arrays
            arrays = strategy.start(grid, arrays, num_rounds=n).arrays

        def loss() -> float:
            model.load_state_dict(arrays.to_torch_state_dict())
            return probe_loss(w, model, seed)

        serve(send, rounds, loss)

    return app


def main() -> None:
    """Start Ray, run the simulation, stop Ray."""
    send = channel()
    w, chosen = arguments(list(SETUPS))
    actors = SETUPS[chosen.setup]
    variables = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    ray.init(
        num_cpus=actors,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": variables},
    )
    on_sigterm(ray.shutdown)  # after ray.init, which installs a handler of its own
    try:
        run_simulation(
            server_app(w, chosen.seed, send),
            client_app(w, chosen.seed),
            num_supernodes=w.clients,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
