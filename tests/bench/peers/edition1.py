"""fednb's first edition on one workload, spoken to through `protocol`.

The benchmark is today's, the engine the old one: the runner puts the first edition's
`fednb` in front of today's on the path.
"""

import os

import torch
from peers.protocol import arguments, channel, on_sigterm, serve
from workloads import probe_loss

import fednb
from tests.bench.__main__ import EDITION1, Fednb


def main() -> None:
    """Set up and serve."""
    send = channel()
    w, chosen = arguments(["threads"])
    on_sigterm(lambda: None)
    if not fednb.__file__.startswith(str(EDITION1)):
        raise RuntimeError(f"this is not the first edition: {fednb.__file__}")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    bench = Fednb(w)
    model = w.model(chosen.seed)

    def loss() -> float:
        tensors = bench.fed.layout.tensors(bench.state.theta[0])
        model.load_state_dict(tensors, strict=False)
        return probe_loss(w, model, chosen.seed)

    serve(send, bench.rounds, loss)


if __name__ == "__main__":
    main()
