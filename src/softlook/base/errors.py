"""Errors say what was wanted, what came, and what to do."""


class ShapeError(ValueError):
    """A tensor's sizes do not fit the others."""


class MaskError(ValueError):
    """A mask or a bias does not fit the map it is laid over."""


class DtypeError(ValueError):
    """A tensor holds a kind of number the operation cannot work with."""


class BackendError(ValueError):
    """The path asked for cannot answer this question."""
