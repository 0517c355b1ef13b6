"""Known column names: sources, targets, texts, labels, languages."""

import re

SOURCES = ("source", "src", "input", "original", "from", "source_text", "src_text")
TARGETS = ("target", "tgt", "trg", "output", "translation", "to", "target_text", "tgt_text")
TEXT_WORDS = """
    text sentence review content body comment tweet message document utterance question query phrase article review_text
    reviewtext sentence1 text1 text_a sentence_a premise question1 prompt headline description title
"""
LABEL_WORDS = """
    label labels class sentiment category stars rating polarity emotion intent topic gold_label is_duplicate quality
    toxic score target y class_index
"""
TEXTS, LABELS = tuple(TEXT_WORDS.split()), tuple(LABEL_WORDS.split())
PAIRS = (
    ("premise", "hypothesis"),
    ("question", "answer"),
    ("question", "sentence"),
    ("question", "context"),
    ("query", "document"),
    ("query", "passage"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
    ("text", "text_pair"),
)
KNOWN = frozenset((*SOURCES[:3], *TARGETS[:4], *TEXTS, *LABELS, "id", "index", "idx"))
"""Names that mark a first row as a header."""

LANGUAGE_WORDS = """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka
    kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl
    nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw
    ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    ara bul cat ces dan deu ell eng est eus fas fin fra gle glg heb hin hrv hun ind isl ita jpn kat kor lav lit mkd nld
    nor pol por ron rus slk slv spa srp swe tha tur ukr vie zho cmn ger fre dut
    arabic basque bulgarian catalan chinese croatian czech danish dutch english estonian finnish french georgian german
    greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian norwegian
    persian polish portuguese romanian russian serbian slovak slovenian spanish swedish thai turkish ukrainian
    vietnamese
"""
LANGUAGES = frozenset(LANGUAGE_WORDS.split())
LANGUAGE = re.compile(r"(?:.*\.)?([a-z]{2,12})(?:[_-][a-z]{2,4})?")


def is_language(name: str) -> bool:
    """Whether a name is a language: en, eng, english, en_US, translation.en.

    >>> [is_language(name) for name in ("en", "pt-BR", "translation.de", "text")]
    [True, True, True, False]
    """
    found = LANGUAGE.fullmatch(name.casefold())
    return found is not None and found[1] in LANGUAGES
