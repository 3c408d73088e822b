"""BlazeFL on one workload, spoken to through `protocol`.

Its idiom: a client trainer whose `worker` trains one client, in a pool of threads (the
mode that it recommends) or of processes with shared memory; the whole state travels as
one vector. Its threads are meant for a Python without the interpreter lock (3.14t);
here they share the lock, as fednb's threads do.
"""

# ruff: noqa: E402
import random
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

# this file is called blazefl, too: only the library may answer to that name
sys.path[:] = [p for p in sys.path if not p.rstrip("/").endswith("peers")]

import torch
import torch.multiprocessing as mp
from blazefl.core import (
    IPCMode,
    ProcessPoolClientTrainer,
    SHMHandle,
    ThreadPoolClientTrainer,
    deserialize_model,
    serialize_model,
)
from peers.protocol import arguments, channel, on_sigterm, serve
from workloads import Workload, probe_loss, tensors, train, workload

SETUPS = ("threads2", "processes2", "threads1")


@dataclass
class Down:
    """What the server sends."""

    model_parameters: torch.Tensor


@dataclass
class Up:
    """What a client sends back."""

    model_parameters: torch.Tensor | SHMHandle


@dataclass
class Config:
    """What a worker process is told of its client."""

    name: str
    sampled: int
    seed: int
    client: int


def train_client(w: Workload, seed: int, client: int, start: torch.Tensor):
    """One client's new parameters."""
    torch.set_num_threads(1)
    model = w.make_model()
    deserialize_model(model, start)
    x, y = tensors(w, seed)
    order = torch.Generator().manual_seed(random.getrandbits(31))
    train(w, model, x[client], y[client], order)
    return serialize_model(model)


class Threads(ThreadPoolClientTrainer[Up, Down]):
    """Clients in a pool of threads."""

    def __init__(self, w: Workload, seed: int, parallel: int) -> None:
        self.w = w
        self.seed = seed
        self.num_parallels = parallel
        self.device = "cpu"
        self.cache = []
        self.stop_event = threading.Event()

    def worker(self, cid, device, payload, stop_event) -> Up:
        """Train one client."""
        return Up(train_client(self.w, self.seed, cid, payload.model_parameters))

    def uplink_package(self) -> list[Up]:
        """Hand over what came back."""
        package, self.cache = self.cache, []
        return package


class Processes(ProcessPoolClientTrainer[Up, Down, Config]):
    """Clients in a pool of processes, with shared memory between them."""

    def __init__(self, w: Workload, seed: int, parallel: int) -> None:
        self.w = w
        self.seed = seed
        self.num_parallels = parallel
        self.device = "cpu"
        self.cache = []
        self.share_dir = Path(".")
        self.ipc_mode = IPCMode.SHARED_MEMORY
        self.manager = mp.Manager()
        self.stop_event = self.manager.Event()
        self.buffer = serialize_model(w.model(seed))
        tensors(w, seed)  # made before the fork: the processes share it

    def get_client_config(self, cid: int) -> Config:
        """What the worker needs to know."""
        return Config(self.w.name, self.w.sampled, self.seed, cid)

    def prepare_uplink_package_buffer(self) -> Up:
        """Room for an answer."""
        return Up(self.buffer.clone())

    @staticmethod
    def worker(config, payload, device, stop_event, *, shm_buffer=None) -> Up:
        """Train one client."""
        w = workload(config.name, config.sampled)
        start = payload.model_parameters
        found = train_client(w, config.seed, config.client, start)
        shm_buffer.model_parameters.copy_(found)
        return Up(SHMHandle())

    uplink_package = Threads.uplink_package


def main() -> None:
    """Set up and serve."""
    send = channel()
    w, chosen = arguments(list(SETUPS))
    on_sigterm(lambda: None)
    torch.set_num_threads(1)
    parallel = int(chosen.setup[-1])
    kind = Processes if chosen.setup.startswith("processes") else Threads
    trainer = kind(w, chosen.seed, parallel)
    model = w.model(chosen.seed)
    draw = random.Random(chosen.seed)

    def rounds(n: int) -> None:
        for _ in range(n):
            clients = draw.sample(range(w.clients), w.sampled)
            trainer.local_process(Down(serialize_model(model)), clients)
            found = [up.model_parameters for up in trainer.uplink_package()]
            # all clients have as many samples
            deserialize_model(model, torch.stack(found).mean(0))

    serve(send, rounds, lambda: probe_loss(w, model, chosen.seed))


if __name__ == "__main__":
    main()
