"""WebShop's search engine: BM25 as Lucene computes it, without Java.

In the paper: the search box of WebShop (section 3). The original asks Anserini, that is Lucene 8.11; a page of results is only
the same if the order is. Four things decide it: the analyzer (how text becomes terms), k1 = 0.9 and b = 0.4, the length of a text
in Lucene's lossy byte, and ties broken by id. For a query with terms t, each as often as it is repeated,

    score(d) = sum_t idf(t) tf / (tf + k1 (1 - b + b L(d) / mean L)),   idf(t) = ln(1 + (N - df + 1/2) / (df + 1/2)),

N texts, df of them with t, tf times t in d. (Textbooks have a factor k1 + 1 in front, which changes no order.)

How it differs from the original:
1. Scores are float64 here and float32 there; both are rounded to four decimals.
2. `<a>`, `<c>`, `<q>` and `<r>` as the first word of a query have a meaning of their own in the original, and crash it in its text
   mode. Here they are words like any other.
3. Emoji, and scripts that write no blanks (Thai, say), are not indexed.
"""
import math
from collections import Counter, defaultdict
from functools import lru_cache

K1, B = 0.9, 0.4
MOST_HITS = 50
STOP_WORDS = frozenset("a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
                       "this to was will with".split())


@lru_cache(None)
def _words():
    """A pattern for the words of a text: Unicode's word boundaries (UAX 29), as Lucene's StandardTokenizer draws them.

    Letters, digits and `_` stay together; between two letters so do . : ' and their like (`u.s.a`, `don't`, `color:ash`), between
    two digits . , ' ; and theirs (`9.5`, `12,000`). A Chinese or Hiragana character is a word of its own.
    """
    import regex
    one = lambda *kinds: "[" + "".join(rf"\p{{WB={kind}}}" for kind in kinds) + "]"
    follows = lambda character: character + one("Extend", "Format", "ZWJ") + "*"         # with its accents
    letter, digit, katakana, joiner = (follows(one(*kinds)) for kinds in (
        ("ALetter", "Hebrew_Letter"), ("Numeric",), ("Katakana",), ("ExtendNumLet",)))
    in_word, in_number = (follows(one(kind, "MidNumLet", "Single_Quote")) for kind in ("MidLetter", "MidNum"))
    run = rf"(?:(?:{letter}(?:(?:{in_word})?{letter})*|{digit}(?:(?:{in_number})?{digit})*)+|(?:{katakana})+)"
    return regex.compile(rf"(?:{joiner})*{run}(?:(?:{joiner})+{run})*(?:{joiner})*|[\p{{Han}}\p{{Hiragana}}]")


@lru_cache(None)
def _stemmer():
    from nltk.stem.porter import PorterStemmer
    return PorterStemmer(PorterStemmer.MARTIN_EXTENSIONS)  # the revision by Porter himself, which Lucene has too


@lru_cache(100_000)
def _stem(word: str) -> str:
    return _stemmer().stem(word, to_lowercase=False)


def terms(text: str) -> list[str]:
    """The terms of a text in order: words without a final 's, in lower case, without stop words, stemmed.

    >>> terms('The women\\'s T-shirts, 9.5 in 12"x16"')
    ['women', 't', 'shirt', '9.5', '12', 'x16']
    """
    found = []
    for word in _words().findall(text):
        if word[-2:] in ("'s", "'S", "\u2019s", "\u2019S", "\uff07s", "\uff07S"):
            word = word[:-2]
        word = word.lower()
        if word not in STOP_WORDS:
            found.append(_stem(word))
    return found


def lossy(length: int) -> int:
    """A length as Lucene stores it in one byte: exact below 40, then 24 plus the four leading bits of what is above 24.

    >>> [lossy(n) for n in (39, 41, 57, 100, 1000)]
    [39, 40, 56, 96, 984]
    """
    if length < 40:
        return length
    shift = (length - 24).bit_length() - 4
    return 24 + ((length - 24) >> shift << shift)


class Index:
    def __init__(self, texts: dict[str, str]):
        """texts: {id: what is searched}."""
        self.postings = defaultdict(list)                  # term -> [(id, tf)]
        lengths = {}
        for name, text in texts.items():
            counts = Counter(terms(text))
            lengths[name] = counts.total()
            for term, count in counts.items():
                self.postings[term].append((name, count))
        mean = sum(lengths.values()) / max(1, len(lengths)) or 1.0
        self.length_part = {name: K1 * (1 - B + B * lossy(length) / mean) for name, length in lengths.items()}

    def search(self, query: str, most: int = MOST_HITS) -> list[tuple[str, float]]:
        """The best `most` (id, score), best first; only texts with at least one of the query's terms. Equal scores: by id."""
        scores, number = defaultdict(float), len(self.length_part)
        for term, repeated in Counter(terms(query)).items():
            postings = self.postings.get(term, ())
            idf = math.log(1 + (number - len(postings) + 0.5) / (len(postings) + 0.5))
            for name, tf in postings:
                scores[name] += repeated * idf * tf / (tf + self.length_part[name])
        ranked = sorted(((name, round(score, 4)) for name, score in scores.items()), key=lambda hit: (-hit[1], hit[0]))
        return ranked[:most]
