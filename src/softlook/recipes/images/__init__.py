"""Image classifiers: reading images, augmentation, training and prediction."""

from importlib.util import find_spec

if find_spec("PIL") is None:
    raise ImportError("images are read with Pillow: pip install softlook[images]")
