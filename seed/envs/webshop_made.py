"""Made-up products for WebShop: for a machine without the downloaded files, and for a model that learns on a laptop.

Not in the paper, whose products are scraped from a shop. These are 1,000 in the same files and fields: five categories, eight kinds in
each, 25 products of a kind. A product has three of its category's attributes: one stands in its name, one in its description, one
is its first feature; its instruction asks for two of them. So the names on a page of results do not always tell which product will do.

How it differs from scraped products:
1. Texts are short: a page of results costs a tiny model about as much as a room of a household.
2. The reward has loopholes (size 6 passes for 6.5, "large" for "x-large": see webshop_reward.py). The values and attributes here are
   chosen so that none of them passes for another one, and every goal can be reached.

Everything follows from the seed; the same files are written on every machine.
"""
import json
import random
from pathlib import Path

from seed.envs.webshop_products import INSTRUCTIONS, PRODUCTS

A_KIND = 25                           # products
BRANDS = "Arvik Belmora Cestrel Dovane Elmwick Fenro Halvor Jorane Lumera Tesko".split()
COLORS = ("Black", "White", "Blue", "Red", "Green", "Purple")
INCHES = ("8 Inch", "12 Inch", "16 Inch", "20 Inch")
OUNCES = ("2 Ounce", "6 Ounce", "12 Ounce", "24 Ounce")
COUNTS = ("4 Count", "12 Count", "24 Count", "36 Count")
SCENTS = ("Lavender", "Citrus", "Jasmine", "Vanilla", "Cedar", "Eucalyptus")
FLAVORS = ("Lemon", "Ginger", "Garlic", "Sea Salt", "Maple", "Cinnamon")
STYLES = ("Travel", "Studio", "Office", "Sport")
# category: the top of `product_category`, {what stands below it: (kinds, options)}, attributes
CATEGORIES = {
    "beauty": ("Beauty & Personal Care", {
        "Skin Care": ("body lotion, face cream, lip balm, hand soap", {"Scent": SCENTS, "Size": OUNCES}),
        "Hair Care": ("shampoo, conditioner, hair serum, hair mask", {"Scent": SCENTS, "Size": OUNCES})},
        "cruelty free, fragrance free, aloe vera, long lasting, sensitive skin, coconut oil, tea tree, refill pack"),
    "electronics": ("Electronics", {
        "Audio": ("headphones, bluetooth speaker, microphone, radio", {"Color": COLORS, "Style": STYLES}),
        "Accessories": ("phone charger, keyboard, webcam, power bank", {"Color": COLORS, "Style": STYLES})},
        "noise cancelling, fast charging, water resistant, hands free, heavy duty, easy install, energy saving, ultra thin"),
    "fashion": ("Clothing, Shoes & Jewelry", {
        "Shoes": ("running shoes, hiking boots, sandals, slippers", {"Color": COLORS, "Size": ("6", "7", "8", "9", "10", "11")}),
        "Clothing": ("hoodie, rain jacket, leggings, dress shirt", {"Color": COLORS, "Size": ("Small", "Medium", "Large")})},
        "machine washable, quick drying, slim fit, moisture wicking, soft lining, classic design, everyday wear, stretch fabric"),
    "garden": ("Home & Kitchen", {
        "Dining": ("coffee mug, dinner plate, cutting board, storage jar", {"Color": COLORS, "Size": INCHES}),
        "Decor": ("table lamp, throw pillow, wall clock, floor rug", {"Color": COLORS, "Size": INCHES})},
        "solid wood, easy clean, space saving, non slip, stain resistant, lead free, hand painted, gift box"),
    "grocery": ("Grocery & Gourmet Food", {
        "Snacks": ("trail mix, energy bars, popcorn, crackers", {"Flavor": FLAVORS, "Size": COUNTS}),
        "Pantry": ("herbal tea, olive oil, hot sauce, pasta", {"Flavor": FLAVORS, "Size": COUNTS})},
        "gluten free, sugar free, non gmo, low sodium, dairy free, high protein, small batch, certified organic")}


def make_products(folder: Path, seed: int) -> None:
    """Write the two files of products and instructions into `folder`, which is made where it is missing."""
    rng = random.Random(seed)
    rows, instructions = [], {}
    kinds = [(category, top, below, kind, options, attributes.split(", "))
             for category, (top, groups, attributes) in CATEGORIES.items()
             for below, (names, options) in groups.items() for kind in names.split(", ")]
    asins = [f"B{number}" for number in rng.sample(range(1000, 10_000), A_KIND * len(kinds))]
    for category, top, below, kind, options, attributes in kinds:
        for _ in range(A_KIND):
            asin, brand = asins[len(rows)], rng.choice(BRANDS)
            named, described, first = has = rng.sample(attributes, 3)
            wanted = rng.sample(has, 2)
            rows.append({
                "name": f"{brand} {named} {kind}".title(), "asin": asin, "category": category, "query": kind,
                "product_category": f"{top} › {below} › {kind.title()}", "pricing": _pricing(rng),
                "full_description": f"{described.capitalize()} {kind} for every day.",
                "small_description": [first.capitalize(), f"Made by {brand}"], "images": [], "average_rating": "",
                "customization_options": _choose_options(options, rng), "product_information": {}})
            instructions[asin] = {"attributes": sorted(has), "instruction": f"Find me {', '.join(wanted)} {kind}",
                                  "instruction_attributes": wanted}
    rng.shuffle(rows)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in ((PRODUCTS, rows), (INSTRUCTIONS, instructions)):
        (folder / name).write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")


def _pricing(rng: random.Random) -> str:
    """Mostly one price; sometimes a range, seldom none (the shop then says 100 dollars)."""
    price, draw = rng.randint(4, 94) + rng.choice((0.0, 0.5, 0.95, 0.99)), rng.random()
    return "" if draw < 0.03 else f"${price:.2f}" if draw < 0.9 else f"${price:.2f}${price + rng.randint(2, 9):.2f}"


def _choose_options(options: dict[str, tuple[str, ...]], rng: random.Random) -> dict | str:
    """None, one or both of a kind's options, with two to four values each."""
    names = sorted(rng.sample(sorted(options), rng.choices((0, 1, 2), (3, 7, 10))[0]))
    chosen = {name: set(rng.sample(options[name], rng.randint(2, min(4, len(options[name]))))) for name in names}
    return {name: [{"value": value, "image": None} for value in options[name] if value in chosen[name]] for name in names} or ""
