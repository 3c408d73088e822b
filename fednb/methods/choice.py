"""Draw clients with unequal probabilities: what methods that select clients share.

``fed.sample`` draws all clients with the same probability. Here client k has a weight
exp(l_k) and a Gumbel number of its own, g_k = -log(-log u_k): the client with the
largest l_k + g_k is a draw with probability exp(l_k) / Σ_j exp(l_j), and the n largest
are n draws without replacement. Nothing is exponentiated, so no weight is too large.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..clustering import num_clusters
from ..door import Fed


def gumbel(fed: Fed) -> Tensor:  # (K,)
    """Independent Gumbel numbers -log(-log u), one for each client's ticket u."""
    return -(-fed.tickets().clamp_min(1e-300).log()).log()


def weighted_sample(fed: Fed, size: int, logits: Tensor) -> Tensor:  # (size,)
    """Draw clients without replacement, with probabilities ∝ exp(logits).

    These are the probabilities of each draw among the clients that are left. A client
    of logit -inf is drawn only when no others are left.
    """
    return (logits.double() + gumbel(fed)).topk(size).indices.sort().values


def boltzmann(v: Tensor, coalitions: Tensor, beta: float) -> Tensor:  # (K,)
    """π_p(k) ∝ exp(β v_k) in each coalition (FedCVR-Bolt, Eq. 8), from v (K,).

    With β = inf only the best client of a coalition has a positive probability.
    """
    zeros = v.new_zeros(num_clusters(coalitions))
    best = zeros.scatter_reduce(0, coalitions, v, "amax", include_self=False)
    best = best[coalitions]  # (K,) the largest v in the coalition of k
    weight = torch.where(v < best, beta * (v - best), 0).exp()  # at most 1
    return weight / zeros.index_add(0, coalitions, weight)[coalitions]


def largest(key: Tensor, size: int) -> Tensor:  # (size,)
    """The clients with the largest keys (K,); of equals, those with lower numbers."""
    return key.argsort(descending=True, stable=True)[:size].sort().values


def representatives(key: Tensor, coalitions: Tensor, P: int) -> tuple[Tensor, Tensor]:
    """The client with the largest key in each coalition (C,), and P clients in total.

    The P clients are the best of each coalition and then the best of the rest.
    """
    order = key.argsort(descending=True, stable=True)
    rank = order.argsort()  # (K,) 0 for the client with the largest key
    worst = coalitions.new_full((num_clusters(coalitions),), len(key))
    best_rank = worst.scatter_reduce(0, coalitions, rank, "amin")  # (C,)
    best = order[best_rank]
    rest = order[~torch.isin(order, best)]
    return best, torch.cat([best, rest[: P - len(best)]]).sort().values


def coalition_weights(n: Tensor, coalitions: Tensor, clients: Tensor) -> Tensor:  # (K,)
    """Weights with which the drawn ``clients`` (n,) represent their coalitions.

    The clients drawn from a coalition share all of its samples, in proportion to their
    own samples n_k. Read only the weights of ``clients``.
    """
    all_samples = torch.bincount(coalitions, n.double())  # (C,)
    drawn_samples = torch.bincount(coalitions[clients], n[clients].double())  # (C,)
    return n * (all_samples / drawn_samples)[coalitions]


def shuffle_members(fed: Fed, coalitions: Tensor) -> Tensor:  # (K,)
    """Permute the members of coalitions and keep the coalitions' sizes."""
    old_place = fed.tickets().argsort()
    new_place = fed.tickets().argsort()
    new = torch.empty_like(coalitions)
    new[new_place] = coalitions[old_place]
    return new
