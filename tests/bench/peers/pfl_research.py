"""Apple's pfl-research (`pfl`) on one workload, spoken to through `protocol`.

Its idiom: `FederatedAveraging.run` over a `SimulatedBackend`; one process, or several
under torchrun, each training its share of the cohort on the same replica and
all-reducing the weighted differences (weights only, no BatchNorm statistics). Its
in-memory datasets are read in order, without shuffling.
"""

import os
import sys

import torch
from peers.protocol import arguments, channel, on_sigterm, serve
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy
from workloads import Workload, probe_loss, tensors

SETUPS = {
    "torchrun2": (2, 1),
    "threads2": (1, 2),
    "threads1": (1, 1),
}  # (processes, threads)


def relaunch_under_torchrun(processes: int) -> None:
    """Become torchrun, which runs this module again `processes` times and passes stdin
    on to them.
    """
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={processes}",
    ]
    os.environ["OMP_NUM_THREADS"] = "1"
    os.execv(
        sys.executable,
        [sys.executable, *torchrun, "-m", "peers.pfl_research", *sys.argv[1:]],
    )


def build(w: Workload, seed: int):
    """Return the algorithm, its backend, its model and the module trained."""
    x, y = tensors(w, seed)
    module = w.model(seed).train()
    module.loss = lambda features, labels: cross_entropy(module(features), labels)
    module.metrics = lambda *_: {}
    model = PyTorchModel(
        module,
        lambda parameters, lr: torch.optim.SGD(
            parameters, lr=lr, momentum=w.momentum, weight_decay=w.weight_decay
        ),
        torch.optim.SGD(
            module.parameters(), lr=1.0
        ),  # the server takes the average as it is
    )
    # In turn, hence alike on every rank without seeding.
    sampler = get_user_sampler("minimize_reuse", list(range(w.clients)))
    data = FederatedDataset(
        lambda k: PyTorchTensorDataset((x[k], y[k]), user_id=str(k)), sampler
    )
    backend = SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()])
    return FederatedAveraging(), backend, model, module


def main() -> None:
    """Set up and serve; under torchrun rank 0 serves and tells the others how many
    rounds to join.
    """
    w, chosen = arguments(list(SETUPS))
    processes, threads = SETUPS[chosen.setup]
    if processes > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        relaunch_under_torchrun(processes)
    send = channel()
    on_sigterm(lambda: None)
    torch.set_num_threads(threads)
    algorithm, backend, model, module = build(w, chosen.seed)
    local = NNTrainHyperParams(
        local_batch_size=w.batch, local_num_epochs=w.epochs, local_learning_rate=w.lr
    )
    done = 0

    def together(n: int) -> int:
        """Rank 0's number, on every rank."""
        number = torch.tensor([n])
        if processes > 1:
            torch.distributed.broadcast(number, src=0)
        return int(number)

    def join(n: int) -> None:
        nonlocal done
        done += n
        # Iteration 0 would evaluate: it is the warm-up, and no later one is a multiple
        # of 2**60.
        params = NNAlgorithmParams(
            done,
            evaluation_frequency=2**60,
            train_cohort_size=w.sampled,
            val_cohort_size=0,
        )
        algorithm.run(params, backend, model, local, send_metrics_to_platform=False)

    if int(os.environ.get("RANK", "0")) == 0:
        try:
            serve(
                send,
                lambda n: join(together(n)),
                lambda: probe_loss(w, module, chosen.seed),
            )
        finally:
            together(0)
    else:
        while n := together(0):
            join(n)
    if processes > 1:
        torch.distributed.barrier()
        # tearing gloo down aborts now and then ("terminate called without an active
        # exception")
        os._exit(0)


if __name__ == "__main__":
    main()
