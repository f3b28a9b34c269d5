"""EZPoints' picture: 300 x 300 pixels, two cards side by side, the formula under them.

Places, sizes and colours are those of the original (cards of 135 x 189 at x = 5 and 153, halfway down; the formula in white at
(10, 258), 20 points, on #35654d). The cards are our own: rank above suit, in plain shapes, with the font that Pillow carries.
"""
from functools import lru_cache

SIDE, CARD, LEFT = 300, (135, 189), (5, 153)
INK = {"H": "#c81e1e", "D": "#c81e1e", "S": "#101010", "C": "#101010"}


@lru_cache(4096)
def picture(cards: tuple[str, ...], formula: tuple[str, ...]):
    """A Pillow image. Equal turns share one, which nobody changes."""
    from PIL import Image, ImageDraw, ImageFont
    image = Image.new("RGB", (SIDE, SIDE), "#35654d")
    pen = ImageDraw.Draw(image)
    top = (SIDE - CARD[1]) // 2
    for card, left in zip(cards, LEFT):
        pen.rounded_rectangle((left, top, left + CARD[0] - 1, top + CARD[1] - 1), 10, fill="white", outline="#404040", width=2)
        rank, middle = card[1].replace("T", "10"), left + CARD[0] / 2
        pen.text((middle, top + 60), rank, fill=INK[card[0]], font=ImageFont.load_default(72), anchor="mm")
        suit(pen, card[0], middle, top + 140)
    pen.text((10, 258), f"Formula: {' '.join(formula)}", fill="white", font=ImageFont.load_default(20))
    return image


def suit(pen, name: str, x: float, y: float) -> None:
    """The sign of a suit, about 50 pixels wide, centred at (x, y)."""
    ink = INK[name]
    disc = lambda dx, dy, r: pen.ellipse((x + dx - r, y + dy - r, x + dx + r, y + dy + r), fill=ink)
    shape = lambda *points: pen.polygon([(x + dx, y + dy) for dx, dy in points], fill=ink)
    if name == "D":
        shape((0, -30), (22, 0), (0, 30), (-22, 0))
    elif name == "H":
        disc(-12, -10, 13), disc(12, -10, 13), shape((-24, -4), (24, -4), (0, 28))
    elif name == "S":
        disc(-12, 6, 13), disc(12, 6, 13), shape((-24, 0), (24, 0), (0, -30)), shape((0, 0), (-9, 28), (9, 28))
    else:
        disc(0, -14, 13), disc(-15, 7, 13), disc(15, 7, 13), shape((0, -5), (-9, 28), (9, 28))
