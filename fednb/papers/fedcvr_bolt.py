"""What FedCVR-Bolt's tables measure: errors of a regression, and who was selected.

Table 1 reports the mean over clients of their mean squared errors on test data, Table 2 that of their accuracies. Both
hide whom the selection serves, so the spread over clients stands beside them, and how evenly clients were visited.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import metrics
from ..experiment import measure


def measure_regression(fed, state) -> dict[str, Any]:
    """Mean squared error of each client's model on its test data, over clients; and the selection.

    ``mse`` is the plain mean over clients, ``mse_weighted`` that by their training samples, the loss of Eq. 1.
    """
    meter = fed.meter  # judging sends nothing
    loss = fed.loss(state.theta, on="test")  # (K, C)
    fed.meter = meter
    own = loss.gather(1, state.labels[:, None])[:, 0].double().cpu().numpy()  # (K,)
    n = fed.n.cpu().numpy()
    out = {"mse": metrics.average(own), "mse_weighted": metrics.average(own, n)}
    return out | {"mse_std": float(np.nanstd(own)), "mse_worst": float(np.nanmax(own))} | selection(fed)


def measure_classification(fed, state) -> dict[str, Any]:
    """The usual numbers, and the selection."""
    return measure(fed, state) | selection(fed)


def selection(fed) -> dict[str, float]:
    """How evenly clients were visited so far: 1 for all alike, small when few were visited often.

    ``coverage`` is the share of clients that trained at least once, ``evenness`` is 1 / (K Σ_k q_k²), where q_k is the
    share of all visits that were to client k (the inverse Simpson index over K), ``most`` the visits to one client.
    """
    visits = fed.snapshot()["visits"].astype(float)
    q = visits / max(visits.sum(), 1)
    evenness = 1 / (len(q) * np.square(q).sum()) if visits.any() else 1.0
    return {"coverage": float((visits > 0).mean()), "evenness": float(evenness), "most_visits": int(visits.max())}
