"""Reference implementation of beam search with groups: lists, one sequence, no early exit."""

from tests.decode.sessions import EOS, RandomLogitsSession

Beam = tuple[float, tuple[int, ...]]


def reference_beam_search(
    session: RandomLogitsSession,
    *,
    max_length: int,
    group_size: int,
    groups: int,
    diversity: float,
    min_length: int,
    penalty: float,
) -> list[tuple[float, list[int]]]:
    """Scores and tokens of the hypotheses of all groups, best first, without duplicates."""
    beams: list[list[Beam]] = [[(0.0, ())] for _ in range(groups)]
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(groups)]
    for length in range(1, max_length + 1):
        chosen: list[int] = []
        for group in range(groups):
            every = candidates(session, beams[group], chosen, diversity, ends=length > min_length)
            done = [
                (total, tokens) for total, tokens in every[:group_size] if tokens[-1] == EOS or length == max_length
            ]
            finished[group] += [(total / length**penalty, [w for w in tokens if w != EOS]) for total, tokens in done]
            finished[group] = sorted(finished[group], key=lambda one: one[0], reverse=True)[:group_size]
            beams[group] = [(total, tokens) for total, tokens in every if tokens[-1] != EOS][:group_size]
            chosen += [tokens[-1] for _, tokens in beams[group]]
    best = sorted((one for group in finished for one in group), key=lambda one: one[0], reverse=True)
    return [one for i, one in enumerate(best) if one[1] not in [ids for _, ids in best[:i]]]


def candidates(
    session: RandomLogitsSession, beams: list[Beam], chosen: list[int], diversity: float, *, ends: bool
) -> list[Beam]:
    every = []
    for total, tokens in beams:
        for token, score in enumerate(session.rows[0][tokens].log_softmax(-1).tolist()):
            if ends or token != EOS:
                every.append((total + score - diversity * chosen.count(token), (*tokens, token)))
    return sorted(every, key=lambda one: one[0], reverse=True)
