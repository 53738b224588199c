"""The toy posteriors of Kassab, Simeone (2020): one and two dimensions, two clients with Gaussian mixture factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedlangevin_mpi.data.shard import Array, DataSource, Shard
from fedlangevin_mpi.errors import ConfigError


class Mixture(NamedTuple):
    """An unnormalised mixture `sum_m w_m N(x | mu_m, C_m)`; the names are those of a shard's arrays.

    Attributes:
        weights: `(k,)`, above 0; their sum is the mixture's integral.
        means: `(k, d)`.
        covariances: `(k, d, d)`.
    """

    weights: Array
    means: Array
    covariances: Array

    def times(self, other: Mixture) -> Mixture:
        """Return the product of two mixtures, a mixture of the products of their components.

        `N(x | a, A) N(x | b, B) = N(a | b, A + B) N(x | c, C)`, `C = (A^-1 + B^-1)^-1`, `c = C (A^-1 a + B^-1 b)`.
        """
        products = [_product(one, two) for one in zip(*self, strict=True) for two in zip(*other, strict=True)]
        return Mixture(*(np.array(arrays) for arrays in zip(*products, strict=True)))


def _product(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, Array, Array]:
    (u, a, A), (v, b, B) = one, other
    both, off = A + B, a - b
    density = np.exp(-off @ np.linalg.solve(both, off) / 2) / np.sqrt(np.linalg.det(2 * np.pi * both))
    covariance = A @ np.linalg.solve(both, B)
    return u * v * density, covariance @ (np.linalg.solve(A, a) + np.linalg.solve(B, b)), covariance


_CLIENTS = {
    "toy_mixture_1d": (
        Mixture(np.array([1.0]), np.array([[1.0]]), np.array([[[4.0]]])),
        Mixture(np.array([1.0, 1.0]), np.array([[-3.0], [3.0]]), np.array([[[1.0]], [[2.0]]])),
    ),
    "toy_mixture_2d": (
        Mixture(
            np.array([1.0, 1.0]),
            np.array([[-1.71, -1.801], [1.0, 0.0]]),
            np.array([[[0.226, 0.1652], [0.1652, 0.6779]], [[2.0, 0.5], [0.5, 2.0]]]),
        ),
        Mixture(np.array([1.0]), np.array([[1.0, 0.0]]), np.array([[[3.0, 0.5], [0.5, 3.0]]])),
    ),
}


class ToyMixture(DataSource):
    """Factors for `model: gaussian_mixture`; two clients as in the paper, or one that holds their product.

    The paper's priors belong to the model. `toy_mixture_1d` (section 6): factors `N(1, 4)` and `N(-3, 1) + N(3, 2)`,
    prior uniform on [-6, 6], or `N(0, 1)` in appendix B.1. `toy_mixture_2d` (appendix B.2): prior
    `N(0, [[4, 2], [2, 4]])`. Second arguments are variances.
    """

    summary: ClassVar[str] = "the two-client Gaussian mixtures of Kassab, Simeone 2020, for model gaussian_mixture"

    name: Literal["toy_mixture_1d", "toy_mixture_2d"]

    def shards(self, clients: Sequence[int], total: int, seed: int) -> list[Shard]:
        """Return `weights`, `means` and `covariances` of each client.

        Raises:
            ConfigError: more than two clients.
        """
        if total > 2:
            raise ConfigError(
                f"clients: found {total} for data {self.name}; allowed: 2 as in the paper, or 1 that holds the product"
            )
        first, second = _CLIENTS[self.name]
        factors = [first, second] if total == 2 else [first.times(second)]
        return [Shard(client, factors[client]._asdict(), self.name) for client in clients]

    def test_set(self, total: int, seed: int) -> None:
        """Return None: there are no rows."""
        return
