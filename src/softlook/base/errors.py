"""Errors say what was wanted, what came, and what to do. All are ValueErrors."""


class ShapeError(ValueError):
    """A tensor's sizes do not fit the others.

    >>> import torch, softlook
    >>> query, key, value = torch.randn(1, 4, 2, 8), torch.randn(1, 3, 2, 8), torch.randn(1, 3, 2, 8)
    >>> softlook.attention(query, key, value)
    Traceback (most recent call last):
    softlook.base.errors.ShapeError: 4 query heads cannot share 3 key heads: 4 is not a multiple of 3
    """


class MaskError(ValueError):
    """A mask or a bias does not fit the map it is laid over.

    >>> import softlook
    >>> softlook.masks.window(-1)
    Traceback (most recent call last):
    softlook.base.errors.MaskError: window wants left >= 0, or None for without end; -1 came
    """


class DtypeError(ValueError):
    """A tensor holds a kind of number, or lives on a device, that the operation cannot work with.

    >>> import torch
    >>> from softlook.ops.bias import as_bias
    >>> as_bias(torch.ones(2, 2, dtype=torch.bool))
    Traceback (most recent call last):
    softlook.base.errors.DtypeError: a bias holds numbers to add to the scores; this one holds torch.bool. ...
    """


class BackendError(ValueError):
    """The path asked for cannot answer this question.

    >>> import torch, softlook
    >>> query = key = value = torch.randn(1, 1, 2, 8)
    >>> softlook.attention(query, key, value, softcap=30.0, backend="sdpa")
    Traceback (most recent call last):
    softlook.base.errors.BackendError: backend='sdpa' cannot answer this: torch's kernels have no soft cap. ...
    """


class ConfigError(ValueError):
    """The sizes of a layer or a model do not go together.

    >>> from softlook.blocks import SelfAttention
    >>> SelfAttention(10, heads=4)
    Traceback (most recent call last):
    softlook.base.errors.ConfigError: 4 heads cannot share a width of 10 evenly. Choose a multiple of 4, or head_width=
    """


class WeightsError(ValueError):
    """A folder does not hold the weights that were expected of it.

    >>> from softlook import weights
    >>> weights.load("no/such/folder")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not a folder...
    """
