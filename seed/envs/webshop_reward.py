"""WebShop's reward: how well a purchase fits the goal, from 0 to 1.

In the paper: the "score" of WebShop in Table 1; "success" is a reward of exactly 1. With A of a wanted attributes, O of o wanted
options, and P = 1 if the price is at most the limit,

    reward = r_type (A + O + P) / (a + o + 1),

where r_type says whether it is the right kind of product at all. Comparisons are fuzzy: two texts are the same if their token set
ratio is above 85, so one whose words are all among the other's is the same.

How it differs from the original:
1. Nothing in the numbers. rapidfuzz stands for thefuzz, whose ratios it computes. A goal without attributes has no attribute term
   (the original divides by zero while logging it).

Loopholes that follow, kept because scores would not compare otherwise: size 6 passes for 6.5 (words 6 and 5), "large" for
"x-large", "pack of 1" for "pack of 2"; "standard" contains the colour tan, and then does not fit (color, standard).
"""
from functools import lru_cache

from seed.envs.webshop_products import Goal, Product

# A chosen option that contains one of these becomes that one; the first in this order counts.
COLOURS = """alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo caramel
champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal dark denim eggplant elephant
espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime
magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple
rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet
walnut wheat white wine yellow""".split()
SAME = 85
LATIN_1 = dict.fromkeys(range(128, 256))


@lru_cache(100_000)
def same(a: str, b: str) -> bool:
    """Whether two texts count as the same. Case, punctuation and the letters of Latin-1's upper half do not matter.

    >>> same("machine wash", "Machine-wash, cold"), same("8 ounce", "12 ounce")
    (True, False)
    """
    from rapidfuzz import fuzz, utils
    a, b = (utils.default_process(text.translate(LATIN_1)) for text in (a, b))
    return round(fuzz.token_set_ratio(a, b)) > SAME


def colour(option):
    """The colour that an option names, or the option. A (name, value) pair has a colour only if the value is one, as a whole."""
    return next((word for word in COLOURS if word in option), option)


def type_score(bought: Product, goal: Product) -> dict:
    """r_type and what it follows from. `title_score`: the share of the goal's nouns (with repetitions) that the name bought has."""
    kinds = lambda product: {part.strip() for part in product.product_category.split("›")}
    query_match, category_match = bought.query == goal.query, len(kinds(bought) & kinds(goal)) >= 2
    title_score = len(set(bought.nouns) & set(goal.nouns)) / len(goal.nouns) if goal.nouns else 0.2
    r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    if title_score < 0.1:  # even of the same kind
        r_type = 0.1 if title_score > 0 else 0.0
    return dict(r_type=r_type, query_match=query_match, category_match=category_match, title_score=title_score)


def score(bought: Product, chosen: dict[str, str], goal: Goal) -> dict:
    """The reward for buying a product with the `chosen` options ({name: value}), and its terms by the original's names."""
    texts = [text.lower() for text in (bought.name, " ".join(bought.bullets), bought.description)]
    has = lambda wanted: any(same(own, wanted) for own in bought.attributes) or any(wanted in text for text in texts)
    attributes = sum(has(wanted) for wanted in goal.attributes)
    # A synthetic goal's option is a pair, compared as it is written: ('size', '6.5').
    options = sum(any(same(colour(value), str(colour(wanted))) for value in chosen.values()) for wanted in goal.options)
    r_price, types = bought.price <= goal.price_upper, type_score(bought, goal.product)
    reward = types["r_type"] * (attributes + options + r_price) / (len(goal.attributes) + len(goal.options) + 1)
    return dict(reward=reward, num_attr_matches=attributes, num_option_matches=options, r_price=r_price, **types)
