"""Parameters as views of one vector."""

from __future__ import annotations

import torch
from torch import nn

from slm_lab.agent.net.flat import flatten, views_in


def params() -> list[nn.Parameter]:
    """Six, two and one number."""
    return [nn.Parameter(torch.arange(float(n)).view(shape)) for n, shape in ((6, (2, 3)), (2, (2,)), (1, ()))]


def test_a_vector_holds_all_numbers_in_order_and_shapes_stay() -> None:
    leaves = params()
    flat = flatten(leaves)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 0]
    assert [leaf.shape for leaf in leaves] == [(2, 3), (2,), ()]
    assert all(torch.equal(leaf, before) for leaf, before in zip(leaves, params(), strict=True))


def test_a_change_of_the_vector_is_one_of_the_parameters_and_the_other_way_round() -> None:
    leaves = params()
    flat = flatten(leaves)
    with torch.no_grad():
        flat[4], flat[8] = 40.0, 80.0
        leaves[1][1] = 70.0
    assert leaves[0].tolist() == [[0, 1, 2], [3, 40, 5]]
    assert leaves[2].item() == 80
    assert flat[7].item() == 70


def test_gradients_of_the_parameters_are_that_of_the_vector() -> None:
    leaves = params()
    flat = flatten(leaves)
    ((2 * leaves[0]).sum() + 3 * leaves[1].sum() + 5 * leaves[2]).backward()  # type: ignore[no-untyped-call]
    assert flat.grad is not None
    assert flat.grad.tolist() == [2] * 6 + [3] * 2 + [5]


def test_views_are_found_with_where_they_start_and_stop() -> None:
    leaves, others = params(), params()
    flat = flatten(leaves)
    flatten(others)
    views = views_in(flat, [others[0], leaves[2], leaves[0], others[2], leaves[1]])
    assert [(view.start, view.stop) for view in views] == [(8, 9), (0, 6), (6, 8)]
    for view, leaf in zip(views, (leaves[2], leaves[0], leaves[1]), strict=True):
        assert view.leaf is leaf


def test_a_parameter_that_is_no_view_is_found_in_itself() -> None:
    alone, other = params()[0], params()[0]
    (view,) = views_in(alone, [other, alone])
    assert view.leaf is alone
    assert (view.start, view.stop) == (0, 6)
