import numpy as np
import pytest
import torch
from torch import nn

from fednb import models, reference
from fednb.params import Layout, mean, mean_by


@pytest.fixture(params=["mlp", "lenet5", "cnn_bn"])
def module(request):
    return getattr(models, request.param)()


def test_row_holds_parameters_then_float_buffers(module):
    layout = Layout.of(module)
    assert sum(p.numel() for p in module.parameters()) == layout.P
    floats = sum(b.numel() for b in module.buffers() if b.is_floating_point())
    assert layout.P + floats == layout.D
    row = layout.row(module)
    assert torch.equal(
        row[: layout.P],
        torch.cat([p.detach().reshape(-1) for p in module.parameters()]),
    )
    state = module.state_dict()
    for name, tensor in layout.tensors(row).items():
        assert torch.equal(tensor, state[name])


def test_bind_makes_the_row_the_module(module):
    layout = Layout.of(module)
    row = layout.bind(module)
    row.copy_(torch.randn(layout.D))
    assert torch.equal(layout.row(module), row)
    with torch.no_grad():
        next(module.parameters()).zero_()
    assert (row[: next(module.parameters()).numel()] == 0).all()


def test_training_a_bound_batchnorm_net_writes_statistics_into_the_row():
    module = models.cnn_bn((1, 8, 8), 3).train()
    layout = Layout.of(module)
    row = layout.bind(module)
    before = row.clone()
    module(
        torch.randn(6, 1, 8, 8)
    ).sum().backward()  # two norms: in-place updates must not trip autograd
    assert torch.equal(row[: layout.P], before[: layout.P])
    assert not torch.equal(row[layout.P :], before[layout.P :])


def test_columns_by_name():
    module = models.mlp(16, (8,), 3)
    layout = Layout.of(module)
    row = layout.row(module)
    assert torch.equal(
        row[layout.columns("3.*")],
        torch.cat([module[3].weight.flatten(), module[3].bias]),
    )
    with pytest.raises(ValueError, match="no parameter matches 'fc'"):
        layout.columns("fc")


def test_dense_layers_are_those_whose_weight_is_a_matrix():
    assert Layout.of(models.mlp(16, (8,), 3)).dense_layers() == ["1.", "3."]
    assert Layout.of(models.cnn_bn()).dense_layers() == ["9."]
    assert Layout.of(nn.Linear(2, 3)).dense_layers() == [""]
    assert Layout.of(nn.Conv2d(1, 2, 3)).dense_layers() == []


def test_a_module_without_parameters_is_refused():
    with pytest.raises(ValueError, match="no parameters"):
        Layout.of(nn.ReLU())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_by_agrees_with_the_loop(dtype):
    g = torch.Generator().manual_seed(0)
    rows, old = (
        torch.randn(7, 5, dtype=dtype, generator=g),
        torch.randn(4, 5, dtype=dtype, generator=g),
    )
    weights, labels = torch.rand(7, generator=g), torch.tensor([0, 2, 2, 0, 3, 3, 3])
    fast = mean_by(rows, weights, labels, old)
    slow = reference.mean_by(
        rows.double().numpy(), weights.numpy(), labels.numpy(), old.double().numpy()
    )
    np.testing.assert_allclose(fast.double().numpy(), np.asarray(slow), rtol=1e-5)
    assert torch.equal(fast[1], old[1])  # nobody is in cluster 1


def test_mean_is_mean_by_with_one_cluster_and_takes_numpy():
    rows, weights = np.random.default_rng(0).normal(size=(6, 4)), np.arange(1.0, 7.0)
    one = mean(rows, weights)
    assert torch.allclose(
        one, mean_by(rows, weights, np.zeros(6, dtype=int), np.zeros((1, 4)))[0]
    )
    assert torch.allclose(
        one, torch.as_tensor(np.average(rows, axis=0, weights=weights))
    )
    assert torch.allclose(mean(rows), torch.as_tensor(rows.mean(0)))


@pytest.mark.parametrize(
    ("labels", "weights", "message"),
    [
        ([0, 1, 2], [1, 1, 1], "labels must lie in 0..1"),
        ([0, 1], [1, 1, 1], "3 rows but 2 labels"),
        ([0, 1, 1], [1, 1], "weights of shape"),
        ([0, 1, 1], [1, -1, 1], "non-negative"),
        ([0, 1, 1], [1, float("nan"), 1], "non-negative"),
    ],
)
def test_mean_by_refuses_nonsense(labels, weights, message):
    with pytest.raises(ValueError, match=message):
        mean_by(
            torch.zeros(3, 2),
            torch.tensor(weights),
            torch.tensor(labels),
            torch.zeros(2, 2),
        )


def test_mean_refuses_weights_that_sum_to_zero():
    with pytest.raises(ValueError, match="sum to zero"):
        mean(torch.ones(2, 3), torch.zeros(2))
