"""A shuffled order of any number of things that is never written down: it is worked out, one place at a time."""

from softlook.train.batches import seed_of

ROUNDS = 4
MIX, KEEP = 0x9E3779B97F4A7C15, (1 << 64) - 1


class Permuted:
    """The numbers below `size`, each once, in an order that depends on `keys` alone. It takes no memory.

    >>> sorted(Permuted(5, 0)[i] for i in range(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, size: int, *keys: int) -> None:
        self.size = size
        self.half = max((max(size - 1, 1).bit_length() + 1) // 2, 1)
        self.keys = [seed_of(*keys, turn) for turn in range(ROUNDS)]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: int) -> int:
        if not 0 <= place < self.size:
            raise IndexError(place)
        number = self._exchanged(place)
        while number >= self.size:  # outside, but on its way round it comes inside again
            number = self._exchanged(number)
        return number

    def _exchanged(self, number: int) -> int:
        """A Feistel network: whatever the mixing, no two numbers become the same."""
        low = (1 << self.half) - 1
        left, right = number >> self.half, number & low
        for key in self.keys:
            mixed = ((right ^ key) * MIX) & KEEP
            mixed = ((mixed ^ (mixed >> 29)) * MIX) & KEEP
            left, right = right, left ^ ((mixed >> 32) & low)
        return left << self.half | right
