"""Torch modules as potentials of one flat vector, for model `network`, which alone imports them: they import torch."""
