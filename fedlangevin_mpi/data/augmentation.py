"""Random crops and mirror images of a minibatch's images, off unless a config asks for them.

A loss of augmented rows is no likelihood of the data: the sampler's target changes, and is said to look colder than
the posterior (Wenzel et al. 2020, section 4; Izmailov et al. 2021, section 7). Held-out rows are never augmented.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedlangevin_mpi.generic import AugmentedRows, Rows
from fedlangevin_mpi.keys import Purpose, generator

Array = np.ndarray[Any, np.dtype[Any]]

AUGMENTATION = (
    "of minibatches of model network, as {padding: 4, flip: true}; null: none. It changes the target: a loss of "
    "augmented rows is no likelihood of the data"
)


class Augmentation(BaseModel):
    """Every image of a minibatch is cropped at a random place, and mirrored with probability 1/2."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    padding: Annotated[
        int, Field(ge=0, le=64, description="pixels of 0 around an image, of which a crop has the old size; 0: no crop")
    ] = 0
    flip: Annotated[bool, Field(description="whether images are mirrored left to right with probability 1/2")] = False

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not self.padding and not self.flip:
            raise ValueError("found neither padding nor flip; allowed: one of them, or null")
        return self

    def draw(self, rows: Rows, seed: int, clients: range, block: int) -> AugmentedRows:
        """Return the rows of a block with where to crop and whether to mirror, from the clients' own random numbers."""
        iterations, _, chains, _ = rows.row.shape
        shift = np.zeros((*rows.row.shape, 2), np.int64)
        flip = np.zeros(rows.row.shape, np.bool_)
        for c, client in enumerate(clients):
            own, drawn = generator(seed, Purpose.AUGMENTATION, client, block), int(rows.drawn[c])
            shape = (iterations, chains, drawn)
            shift[:, c, :, :drawn] = own.integers(2 * self.padding + 1, size=(*shape, 2))
            flip[:, c, :, :drawn] = own.random(shape) < 0.5 if self.flip else False
        return AugmentedRows(*rows, shift, flip, self.padding)


def augmented(x: Array, shift: Array, flip: Array, padding: int) -> Array:
    """Return images `(..., channels, height, width)` cropped from padded ones, and mirrored.

    Args:
        x: images.
        shift: `(..., 2)` first row and first column of the crop, 0 to 2 padding.
        flip: `(...,)` bool.
        padding: pixels of 0 around an image.
    """
    channels, height, width = x.shape[-3:]
    images = x.reshape(-1, channels, height, width)
    wide = np.pad(images, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    corner = shift.reshape(-1, 2)
    rows, columns = corner[:, :1] + np.arange(height), corner[:, 1:] + np.arange(width)
    columns = np.where(flip.reshape(-1, 1), columns[:, ::-1], columns)
    image = np.arange(len(images))[:, None, None]
    found: Array = np.moveaxis(wide[image, :, rows[:, :, None], columns[:, None, :]], -1, 1).reshape(x.shape)
    return found
