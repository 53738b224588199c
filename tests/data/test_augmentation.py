"""Crops and mirror images: what they do to a row, whose random numbers they take, and where they are refused."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.data.augmentation import Augmentation, augmented
from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.generic import AugmentedRows, Rows, gradient
from fedlangevin_mpi.models.network import Network
from fedlangevin_mpi.runtime.resume import resume
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run
from tests.data.test_images import SIDE, TEST, TRAIN, write_idx


def hand(image, shift, flip, padding):
    """One image, pixel by pixel."""
    channels, height, width = image.shape
    out = np.zeros_like(image)
    for c, i, j in np.ndindex(channels, height, width):
        row = i + shift[0] - padding
        column = (width - 1 - j if flip else j) + shift[1] - padding
        if 0 <= row < height and 0 <= column < width:
            out[c, i, j] = image[c, row, column]
    return out


def test_an_image_is_cropped_and_mirrored():
    rng = np.random.default_rng(1)
    x, shift, flip = rng.random((2, 5, 2, 3, 4)), rng.integers(5, size=(2, 5, 2)), rng.random((2, 5)) < 0.5
    found = augmented(x, shift, flip, 2)
    for at in np.ndindex(2, 5):
        np.testing.assert_array_equal(found[at], hand(x[at], shift[at], flip[at], 2))
    np.testing.assert_array_equal(augmented(x, np.full((2, 5, 2), 2), np.zeros((2, 5), bool), 2), x)


def test_every_crop_and_side_has_the_same_chance_and_clients_their_own_numbers():
    rows = Rows(np.zeros((400, 2, 3, 8), np.int64), np.array([8, 6]), np.ones((2, 8)))
    found = Augmentation(padding=1, flip=True).draw(rows, 1, range(4, 6), 0)
    counts = np.bincount(found.shift[:, 0].reshape(-1, 2) @ [3, 1], minlength=9)
    expected = 400 * 3 * 8 / 9
    assert (np.abs(counts - expected) < 4 * np.sqrt(expected)).all()
    assert abs(found.flip[:, 0].mean() - 0.5) < 4 * 0.5 / np.sqrt(400 * 3 * 8)
    assert not found.flip[:, 1, :, 6:].any()  # padded
    one = Rows(rows.row[:, :1], rows.drawn[1:], rows.weight[1:])
    alone = Augmentation(padding=1, flip=True).draw(one, 1, range(5, 6), 0)
    np.testing.assert_array_equal(alone.shift[:, 0], found.shift[:, 1])
    np.testing.assert_array_equal(alone.flip[:, 0], found.flip[:, 1])
    assert not Augmentation(padding=1).draw(rows, 1, range(2), 0).flip.any()
    with pytest.raises(ValueError, match="neither padding nor flip"):
        Augmentation()


@pytest.mark.parametrize("chains", [2, 8])
def test_a_gradient_is_that_of_the_augmented_rows(chains):
    """One pass a position, and all positions in one."""
    model = Network(module="mlp", options={"hidden": [5]}, input_shape=(1, 4, 4))
    rng = np.random.default_rng(2)
    shard = Shard(0, {"x": rng.random((9, 16)), "y": np.arange(9) % 3}, "here")
    facts = model.facts(shard)
    data = model.pack([shard], [1.0], facts, np.float64)
    theta = rng.normal(size=(1, chains, model.dimension(facts)))
    rows = Rows(rng.integers(9, size=(3, 1, chains, 4)), np.array([4]), np.full((1, 4), 9 / 4))
    batch = Augmentation(padding=1, flip=True).draw(rows, 1, range(1), 0)
    found = gradient(theta, data, batch, 2)
    for chain in range(chains):
        images = data.x[rows.row[2, 0, chain]].reshape(4, 1, 4, 4)
        how = batch.shift[2, 0, chain], batch.flip[2, 0, chain]
        made = [hand(x, shift, flip, 1) for x, shift, flip in zip(images, *how, strict=True)]
        x = np.reshape(made, (4, 16))
        y = data.y[rows.row[2, 0, chain]]
        plain = Rows(np.arange(4).reshape(1, 1, 1, 4), rows.drawn, rows.weight)
        expected = gradient(theta[:, [chain]], data._replace(x=x, y=y), plain, 0)
        np.testing.assert_allclose(found[:, [chain]], expected, rtol=1e-10)
    assert isinstance(batch, AugmentedRows)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    count = TRAIN + TEST
    write_idx(
        tmp_path,
        False,
        rng.integers(256, size=(count, SIDE, SIDE), dtype=np.uint8),
        rng.integers(10, size=count, dtype=np.uint8),
    )
    return tmp_path


def values(folder, name="run", **more):
    given = {
        "seed": 1,
        "clients": 2,
        "chains": 2,
        "iterations": 20,
        "initial": {"name": "module"},
        "algorithm": {"name": "fald", "step_size": 1e-4, "communication_interval": 3, "batch_size": 8},
        "model": {"name": "network", "module": "mlp", "options": {"hidden": [5]}, "input_shape": [1, SIDE, SIDE]},
        "data": {"name": "idx", "path": str(folder), "augmentation": {"padding": 1, "flip": True}},
        "output": {"directory": str(folder / name)},
    }
    return make_config(given | more)


def test_a_resumed_run_goes_on_to_the_bit(folder):
    whole = open_run(run(values(folder, "whole"), comm=MPI.COMM_SELF))
    begun = run(values(folder, "begun", iterations=9), comm=MPI.COMM_SELF)
    resume(begun, ["iterations=20"], comm=MPI.COMM_SELF)
    np.testing.assert_array_equal(open_run(begun).average()[:], whole.average()[:])
    data = {"name": "idx", "path": str(folder)}
    plain = open_run(run(values(folder, "plain", data=data), comm=MPI.COMM_SELF))
    assert np.abs(plain.average()[-1] - whole.average()[-1]).max() > 1e-4


FALD = {"name": "fald", "step_size": 1e-4, "communication_interval": 3}
REFUSED = {
    "null with model softmax_regression": {"model": {"name": "softmax_regression"}},
    "null without algorithm.batch_size": {"algorithm": FALD},
    "null with vr_fald, whose full gradients": {
        "algorithm": {"name": "vr_fald", "step_size": 1e-4, "communication_probability": 0.3, "batch_size": 8}
    },
    "null with algorithm dsvgd": {
        "algorithm": {"name": "dsvgd", "step_size": 1e-4, "batch_size": 8, "global_iterations": 20, "particles": 2}
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_where_it_means_nothing_it_is_refused(tmp_path, message):
    with pytest.raises(ConfigError, match=f"data.augmentation: found one; allowed: {message}"):
        values(tmp_path, **REFUSED[message])


def test_rows_that_are_no_images_are_refused(folder):
    model = {"name": "network", "module": "mlp", "options": {"hidden": [5]}}
    with pytest.raises(
        ConfigError, match=r"data.augmentation: found one for rows of shape \[9\]; allowed: null, or an"
    ):
        run(values(folder, model=model), comm=MPI.COMM_SELF)
