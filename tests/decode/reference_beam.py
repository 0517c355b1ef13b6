"""Reference implementation of beam search with groups: lists, one sequence, no early exit."""

from tests.decode.sessions import END, RandomLogitsSession

Way = tuple[float, tuple[int, ...]]


def reference_beam_search(
    session: RandomLogitsSession,
    *,
    max_length: int,
    each: int,
    groups: int,
    diversity: float,
    min_length: int,
    penalty: float,
) -> list[tuple[float, list[int]]]:
    """The scores and words of what all groups find, best first, nothing twice."""
    ways: list[list[Way]] = [[(0.0, ())] for _ in range(groups)]
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(groups)]
    for length in range(1, max_length + 1):
        chosen: list[int] = []
        for group in range(groups):
            every = candidates(session, ways[group], chosen, diversity, ends=length > min_length)
            whole = [(total, words) for total, words in every[:each] if words[-1] == END or length == max_length]
            finished[group] += [(total / length**penalty, [w for w in words if w != END]) for total, words in whole]
            finished[group] = sorted(finished[group], key=lambda one: one[0], reverse=True)[:each]
            ways[group] = [(total, words) for total, words in every if words[-1] != END][:each]
            chosen += [words[-1] for _, words in ways[group]]
    best = sorted((one for group in finished for one in group), key=lambda one: one[0], reverse=True)
    return [one for i, one in enumerate(best) if one[1] not in [ids for _, ids in best[:i]]]


def candidates(
    session: RandomLogitsSession, ways: list[Way], chosen: list[int], diversity: float, *, ends: bool
) -> list[Way]:
    every = []
    for total, words in ways:
        for word, score in enumerate(session.rows[0][words].log_softmax(-1).tolist()):
            if ends or word != END:
                every.append((total + score - diversity * chosen.count(word), (*words, word)))
    return sorted(every, key=lambda one: one[0], reverse=True)
