"""Made-up reviews: a title, a text of several sentences, and the stars that its words amount to."""

from collections.abc import Iterator
from random import Random

# What each word says of a thing, in stars above or below three.
OPINIONS = {
    "perfect": 2.0, "superb": 1.8, "wonderful": 1.6, "great": 1.2, "solid": 0.8, "good": 0.8,
    "pleasant": 0.6, "fine": 0.4, "average": 0.0, "plain": -0.2, "noisy": -0.6, "clumsy": -0.8,
    "bad": -1.0, "flimsy": -1.2, "ugly": -1.2, "broken": -1.6, "awful": -1.8, "useless": -2.0,
}  # fmt: skip
# How a word before it changes that.
DEGREES = {"": 1.0, "very": 1.3, "really": 1.2, "rather": 0.7, "slightly": 0.4, "not": -0.8}
THINGS = ("kettle", "lamp", "radio", "chair", "jacket", "camera", "knife", "clock", "tent", "phone")
PARTS = ("handle", "colour", "sound", "battery", "cover", "price", "weight", "display", "manual")
SENTENCES = (
    "the {part} is {opinion}",
    "i find the {part} {opinion}",
    "my {thing} came with a {opinion} {part}",
    "after {number} weeks this {thing} from {maker} is still {opinion}",
    "{opinion} {part} and a {opinion} {part} too",
    "we had another {thing} before",
    "i bought it for {number} coins",
)
TITLES = ("{opinion} {thing}", "{opinion}", "a {opinion} {thing} from {maker}", "my {thing}")
NUMBERS = ("two", "three", "four", "six", "ten", "twenty")
SYLLABLES = ("ba", "do", "ki", "lu", "mo", "ne", "ra", "so", "ti", "vu")

NOISE = 0.2  # of a star: what no word explains


def vocabulary() -> list[str]:
    """Return the words that a net may know, "" first; makers' names are not among them."""
    fixed = {word for text in (*SENTENCES, *TITLES) for word in text.split() if "{" not in word}
    chosen = {*OPINIONS, *filter(None, DEGREES), *THINGS, *PARTS, *NUMBERS}
    return ["", *sorted(fixed | chosen)]


def reviews(count: int, seed: int) -> Iterator[tuple[str, str, float]]:
    """Yield title, text and stars of so many reviews, stars from 1 to 5."""
    random = Random(seed)
    for _ in range(count):
        title, said = _written(random, TITLES, 1)
        text, more = _written(random, SENTENCES, random.randint(1, 8))
        opinions = [*said, *said, *more]  # a title counts twice
        mean = sum(opinions) / len(opinions) if opinions else 0.0
        yield title, text, min(5.0, max(1.0, 3 + mean + random.gauss(0, NOISE)))


def _written(random: Random, choices: tuple[str, ...], count: int):
    """Return so many sentences as one text, and the opinions in it."""
    words: list[str] = []
    opinions: list[float] = []
    for _ in range(count):
        for word in random.choice(choices).split():
            if word == "{opinion}":
                degree, opinion = random.choice([*DEGREES]), random.choice([*OPINIONS])
                words += [degree, opinion] if degree else [opinion]
                opinions.append(DEGREES[degree] * OPINIONS[opinion])
            elif word == "{maker}":
                words.append("".join(random.choices(SYLLABLES, k=3)))
            else:
                lists = {"{thing}": THINGS, "{part}": PARTS, "{number}": NUMBERS}
                words.append(random.choice(lists[word]) if word in lists else word)
    return " ".join(words), opinions
