"""Whose turn it is, and what a turn draws."""

import numpy as np
import pytest

from fedlangevin_mpi.algorithms.dsgld import Dsgld
from fedlangevin_mpi.algorithms.dsvgd import Dsvgd
from fedlangevin_mpi.algorithms.pvi import Pvi
from fedlangevin_mpi.algorithms.serving import Deal
from fedlangevin_mpi.runtime.streams import draw_without_replacement
from fedlangevin_mpi.runtime.turns import Turns

AGENTS, ROWS, DIM = 4, 6, 3


def turns(algorithm, seed=1):
    return Turns(seed, algorithm, AGENTS, DIM, ROWS, draw_without_replacement)


def of(kind, name, **options):
    return turns(kind(name=name, step_size=0.1, global_iterations=9, particles=ROWS, **options))


def agents(schedule, iterations=8):
    return [[deal.agent for deal in schedule.deals(i)] for i in range(iterations)]


def test_round_robin_is_in_turn():
    assert agents(of(Dsvgd, "dsvgd")) == [[0], [1], [2], [3], [0], [1], [2], [3]]


def test_random_agents_are_uniform_and_the_same_for_everybody():
    one, other = of(Dsvgd, "dsvgd", schedule="random"), of(Dsvgd, "dsvgd", schedule="random")
    visits = np.array(agents(one, 4000)).ravel()
    assert visits.tolist() == np.array(agents(other, 4000)).ravel().tolist()
    assert np.abs(np.bincount(visits, minlength=AGENTS) / 4000 - 0.25).max() < 4 * np.sqrt(3 / 16 / 4000)


def test_agents_at_once_go_round():
    assert agents(of(Pvi, "pvi", schedule="all"), 2) == [[0, 1, 2, 3]] * 2
    assert agents(of(Pvi, "pvi", schedule="parallel", agents_per_iteration=3), 3) == [[0, 1, 2], [3, 0, 1], [2, 3, 0]]


@pytest.mark.parametrize(
    ("algorithm", "shared"),
    [
        (of(Dsvgd, "dsvgd", batch_size=5, local_iterations=40), True),
        (of(Dsgld, "dsgld", batch_size=5, local_iterations=40), False),
    ],
)
def test_minibatches_are_distinct_rows_that_stand_for_all(algorithm, shared):
    turn = algorithm.turn(3, Deal(2, np.arange(ROWS)), size=12)
    rows, (drawn,), weight = turn.batch
    assert rows.shape == (40, 1, ROWS, 5)
    assert drawn == 5
    np.testing.assert_array_equal(weight, np.full((1, 5), 12 / 5))
    assert rows.min() == 0
    assert rows.max() == 11
    assert (np.diff(np.sort(rows, axis=-1), axis=-1) > 0).all()
    assert (rows == rows[:, :, :1]).all() == shared
    assert algorithm.turn(3, Deal(2, np.arange(ROWS)), size=3).batch.weight.tolist() == [[1.0] * 3]


def test_noise_belongs_to_an_agent_and_an_iteration():
    schedule = of(Dsgld, "dsgld", local_iterations=2)
    deal = Deal(1, np.array([0, 4]))
    first = schedule.turn(0, deal, 0).noise
    assert first.shape == (2, 2, DIM)
    np.testing.assert_array_equal(first, schedule.turn(0, deal, 0).noise)
    assert (first != schedule.turn(1, deal, 0).noise).all()
    assert (first != schedule.turn(0, Deal(2, deal.rows), 0).noise).all()
    assert of(Dsvgd, "dsvgd").turn(0, deal, 0).noise.size == 0


def test_step_sizes_decay_over_local_iterations():
    decay = {"name": "polynomial", "initial": 0.2, "offset": 0.5, "power": 0.55}
    algorithm = Dsvgd.model_validate(
        {"name": "dsvgd", "step_size": decay, "global_iterations": 2, "local_iterations": 3, "particles": ROWS}
    )
    steps = turns(algorithm).turn(4, Deal(0, np.arange(ROWS)), 0).steps
    np.testing.assert_allclose(steps, 0.2 * (1 + np.arange(12, 15) / 0.5) ** -0.55)
