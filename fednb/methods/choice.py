"""Choose clients at random, but not all alike: what the methods that select clients share.

``fed.sample`` draws all clients with the same probability. Here client k has a weight exp(l_k) and a Gumbel number of
its own, g_k = -log(-log u_k): the client with the largest l_k + g_k is a draw with probability exp(l_k) / Σ_j exp(l_j),
and the n largest are n draws without replacement. Nothing is exponentiated, so no weight is too large.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import checks


def num_sampled(sampled: int | float, K: int) -> int:
    """How many of K clients: a number of them, at most K, or a fraction of them.

    ``fed.sample`` counts alike.
    """
    checks.argument("num_sampled", "sampled", sampled, checks.sampled)
    if isinstance(sampled, float):
        return math.ceil(sampled * K)
    return min(sampled, K)


seats = num_sampled  # the old name


def gumbel(fed) -> Tensor:  # (K,)
    """Independent Gumbel numbers -log(-log u), one for each client, from its ticket u."""
    return -(-fed.tickets().clamp_min(1e-300).log()).log()


def weighted_sample(fed, size: int, logits: Tensor) -> Tensor:  # (size,)
    """Draw clients without replacement, one after the other with probabilities ∝ exp(logits) of those that are left.

    A client of logit -inf is drawn only when no others are left.
    """
    return (logits.double() + gumbel(fed)).topk(size).indices.sort().values


def boltzmann(v: Tensor, coalitions: Tensor, beta: float) -> Tensor:
    """π_p(k) ∝ exp(β v_k) in each coalition (FedCVR-Bolt, Eq. 8): (K,), (K,) -> (K,); β = inf leaves the best."""
    C = int(coalitions.max()) + 1
    best = v.new_zeros(C).scatter_reduce(0, coalitions, v, "amax", include_self=False)[
        coalitions
    ]
    pi = torch.where(
        v < best, beta * (v - best), 0
    ).exp()  # at most 1: nothing overflows
    return pi / v.new_zeros(C).index_add(0, coalitions, pi)[coalitions]


def representatives(key: Tensor, coalitions: Tensor, P: int) -> tuple[Tensor, Tensor]:
    """The client with the largest key in each coalition (C,), and they and those with the next largest, P in all."""
    order = key.argsort(descending=True, stable=True)
    place = torch.full_like(coalitions, len(key))[: int(coalitions.max()) + 1]
    first = order[place.scatter_reduce(0, coalitions, order.argsort(), "amin")]
    others = order[~torch.isin(order, first)]
    return first, torch.cat([first, others[: P - len(first)]]).sort().values


def divided(n: Tensor, coalitions: Tensor, S: Tensor) -> Tensor:  # (K,)
    """Weights of clients: those of S share the samples n (K,) of their whole coalition, in proportion to their own."""
    return (
        n
        * (
            torch.bincount(coalitions, n.double())
            / torch.bincount(coalitions[S], n[S].double())
        )[coalitions]
    )


def shuffled(fed, coalitions: Tensor) -> Tensor:  # (K,)
    """Draw members of coalitions of the same sizes: the n-th in one draw takes the place of the n-th in another."""
    new = torch.empty_like(coalitions)
    new[fed.tickets().argsort()] = coalitions[fed.tickets().argsort()]
    return new
