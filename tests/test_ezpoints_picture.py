"""seed/envs/ezpoints_picture.py: every card looks different, and a change shows in its own place."""
from seed.envs.ezpoints_picture import CARD, LEFT, picture


def differs(a, b):
    """The box that holds all pixels in which two pictures differ; None where they are equal."""
    from PIL import ImageChops
    return ImageChops.difference(a, b).getbbox()


def test_each_of_the_52_cards_looks_different():
    cards = [suit + rank for suit in "HSDC" for rank in "A23456789TJQK"]
    left = (LEFT[0], 0, LEFT[0] + CARD[0], 300)
    assert len({picture((card, "H2"), ()).crop(left).tobytes() for card in cards}) == 52
    plain = picture(("H2", "H2"), ())
    assert plain.size == (300, 300) and plain.mode == "RGB" and plain.getpixel((1, 1)) == (0x35, 0x65, 0x4d)


def test_a_change_shows_in_its_place_only():
    base = picture(("H4", "SJ"), ("4",))
    assert differs(base, picture(("H4", "SJ"), ("4",))) is None
    x0, y0, x1, y1 = differs(base, picture(("C9", "SJ"), ("4",)))
    assert 5 <= x0 < x1 <= 5 + 135 and 55 <= y0 < y1 <= 55 + 189
    x0, y0, x1, y1 = differs(base, picture(("H4", "D2"), ("4",)))
    assert 153 <= x0 < x1 <= 153 + 135 and 55 <= y0 < y1 <= 55 + 189
    x0, y0, x1, y1 = differs(base, picture(("H4", "SJ"), ("4", "+", "8")))
    assert 10 <= x0 and 258 <= y0 < y1 <= 290
    x0, y0, x1, y1 = differs(base, picture(("H4", "SJ"), ("+", "*", "10", "+", "10", "+")))
    assert x1 < 300 and y1 < 300                                             # the longest formula fits
