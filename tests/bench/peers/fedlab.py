"""FedLab's standalone pipeline (serial trainer) on one workload, spoken to through
`protocol`.

Its idiom: a `SerialClientTrainer` trains the sampled clients one after the other in one
process, a `ServerHandler` averages flat parameter vectors (weights only, no BatchNorm
statistics).
"""

# ruff: noqa: E402
import random
import sys
from types import ModuleType

import torch

# FedLab imports its MNIST and CIFAR loaders, unused here, and with them torchvision,
# whose PyPI build does not load beside a CPU torch: an empty module in its place is
# enough.
sys.modules["torchvision"] = ModuleType("torchvision")
sys.modules["torchvision"].transforms = None

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Aggregators, SerializationTool
from peers.protocol import arguments, channel, on_sigterm, serve
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from workloads import Workload, probe_loss, tensors

THREADS = {"threads2": 2, "threads1": 1}


class Clients(FedDataset):
    """The clients' tensors; whole batches are indexed at once, the fastest way a
    DataLoader has.
    """

    def __init__(self, w: Workload, seed: int):
        super().__init__()
        self.x, self.y = tensors(w, seed)
        self.num = w.clients

    def get_dataloader(self, id, batch_size, type="train"):
        """Return a shuffling loader over client `id`."""
        data = TensorDataset(self.x[id], self.y[id])
        order = BatchSampler(RandomSampler(data), batch_size, drop_last=False)
        return DataLoader(data, sampler=order, batch_size=None)


class Trainer(SGDSerialClientTrainer):
    """FedLab's trainer with the workload's optimiser, new for every client, and n_k in
    the upload.
    """

    def setup(self, w: Workload, seed: int) -> None:
        """Set the data and the optimiser."""
        self.w = w
        self.setup_dataset(Clients(w, seed))
        self.setup_optim(w.epochs, w.batch, w.lr)

    def train(self, model_parameters, train_loader):
        """Local training; returns [parameters, n_k]."""
        self.optimizer = self.w.optimizer(self._model)
        return [
            *super().train(model_parameters, train_loader),
            torch.tensor(float(self.w.samples)),
        ]


class Server(SyncServerHandler):
    """FedLab's synchronous server, weighting by n_k."""

    def global_update(self, buffer):
        """Average the uploads [parameters, n_k] with weights n_k / n."""
        parameters, weights = zip(*buffer, strict=True)
        SerializationTool.deserialize_model(
            self._model,
            Aggregators.fedavg_aggregate(list(parameters), torch.stack(weights)),
        )


class Pipeline(StandalonePipeline):
    """The standalone loop without evaluation."""

    def evaluate(self):
        """Nothing: only rounds are timed."""


def main() -> None:
    """Set up and serve."""
    send = channel()
    w, chosen = arguments(list(THREADS))
    on_sigterm(lambda: None)
    torch.set_num_threads(THREADS[chosen.setup])
    random.seed(chosen.seed)
    model = w.model(chosen.seed)
    # The handler takes int(ratio * K): half a client more, so that rounding loses none.
    server = Server(
        model, global_round=0, sample_ratio=min(1.0, (w.sampled + 0.5) / w.clients)
    )
    trainer = Trainer(model, w.clients)
    trainer.setup(w, chosen.seed)
    pipeline = Pipeline(server, trainer)

    def rounds(n: int) -> None:
        server.global_round += n
        pipeline.main()

    serve(send, rounds, lambda: probe_loss(w, server.model, chosen.seed))


if __name__ == "__main__":
    main()
