"""seed/envs/sokoban_levels.py: rules and solver against worked cases, level files, and what the generator promises."""
import random

import pytest
from conftest import spec_params

from seed.envs.sokoban_levels import (MOVES, Level, draw, floor_plan, make_levels, place, push, read_board, read_levels, same, solve,
                                      write_levels)
from seed.errors import UserError

NUMBERS = {"train": 60, "valid_seen": 30, "valid_unseen": 30}
FROM_GRID = str.maketrans("_OX√PS", " .$*@+")
STORED = [p for p in spec_params("cases_sokoban_levels.json", "boxoban", "levels") if p.values[0] is None or "rows" in p.values[0]]


@pytest.fixture(scope="module")
def made():
    return make_levels(NUMBERS, (6, 6), 1, 0)


@pytest.mark.parametrize("case", spec_params("cases_sokoban.json", "generated_levels"))
def test_shortest_solutions_of_the_originals_levels(case):
    level = read_board([row.translate(FROM_GRID) for row in case["grid"]])
    assert len(solve(level)) == case["shortest"]
    state = level.player, level.boxes
    for number in case["one_solution"]:
        assert state[1] != level.targets
        state = push(level, *state, list(MOVES)[number - 1])
    assert state[1] == level.targets


@pytest.mark.parametrize("case", STORED)
def test_shortest_solutions_of_published_levels(case):
    assert len(solve(read_board(case["rows"]))) == case["optimal_moves"]


def test_a_level_without_solution_and_a_search_cut_short():
    corner = read_board(["######", "#$ @ #", "#   .#", "######"])
    assert solve(corner) is None
    far = read_board(["########", "#@$   .#", "########"])
    assert len(solve(far)) == 4 and solve(far, most_states=2) is None


def test_pushes_and_walks():
    level = read_board(["#######", "#@$ . #", "#$$.. #", "#######"])
    walk = lambda move: push(level, level.player, level.boxes, move)
    assert walk("right") == ((1, 2), level.boxes - {(1, 2)} | {(1, 3)})
    assert walk("down") == walk("up") == walk("left") == ((1, 1), level.boxes)             # a box with a wall behind it; walls
    two = read_board(["#######", "#@$$. #", "#  .  #", "#######"])
    assert push(two, two.player, two.boxes, "right") == (two.player, two.boxes)             # two boxes in a row


def test_level_files_come_back_as_they_were(made, tmp_path):
    path = tmp_path / "a.xsb"
    write_levels(path, made["train"])
    assert read_levels(path) == made["train"] and all(level.optimum == len(solve(level)) for level in made["train"])


def test_level_files_of_others(tmp_path):
    text = ("Some collection\r\nAuthor: somebody\r\n\r\n; 1\r\n  ####\r\n###--####\r\n#  _ $ @#\r\n# #. #  #\r\n#       #\r\n#########\r\n"
            "; 2, optimum 3\r\n#####\r\n#+$ #\r\n#*  #\r\n#   #\r\n#####\r\nTitle: after the board\r\n")
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    first, second = read_levels(path)
    assert first.size == (6, 9) and first.optimum is None and {(0, 0), (0, 1), (0, 8)} <= first.walls     # outside is wall
    assert (1, 3) not in first.walls and (1, 4) not in first.walls and (2, 3) not in first.walls and len(solve(first)) > 0
    assert second.optimum == 3 and second.player == (1, 1) and second.targets == {(1, 1), (2, 1)} and second.boxes == {(1, 2), (2, 1)}
    assert draw(second, second.player, second.boxes)[1] == "#+$ #" and draw(first, first.player, first.boxes)[0] == "###" + "###" + "###"


@pytest.mark.parametrize("rows, message", [
    (["#####", "#@@$#", "#  .#", "#####"], "2 players, expected one"),
    (["#####", "# $ #", "#  .#", "#####"], "0 players, expected one"),
    (["#####", "#@ $#", "#   #", "#####"], "1 boxes and 0 targets"),
    (["#####", "#@  #", "#   #", "#####"], "0 boxes and 0 targets"),
    (["#####", "#@ $ ", "#  .#", "#####"], "not closed"),
    (["#### ", "#@  #", "# $.#", "#####"], None),                    # a corner that nobody can pass is no hole
    (["#####", "#@ *#", "#   #", "#####"], "solved already")])
def test_levels_that_cannot_be_played_are_named(rows, message, tmp_path):
    path = tmp_path / "a.xsb"
    path.write_text("#####\n#@$.#\n#####\n\n; broken\n" + "\n".join(rows) + "\n")
    if message is None:
        assert len(read_levels(path)) == 2
        return
    with pytest.raises(UserError, match=rf"a\.xsb, level 2 \(line 6\): .*{message}"):
        read_levels(path)


def test_a_file_without_levels(tmp_path):
    (tmp_path / "a.txt").write_text("3#|#@$.#\nhello\n")
    with pytest.raises(UserError, match="has no Sokoban level"):
        read_levels(tmp_path / "a.txt")


def eight(rows):
    """A board turned and mirrored, by coordinates."""
    height, width = len(rows), len(rows[0])
    for flip in (False, True):
        for turn in range(4):
            cells = {}
            for r in range(height):
                for c in range(width):
                    y, x = r, (width - 1 - c if flip else c)
                    for _ in range(turn):
                        y, x = x, height - 1 - y
                    cells[y, x] = rows[r][c]
            yield "\n".join("".join(cells[y, x] for x in range(width)) for y in range(height))


def test_one_name_for_turned_and_mirrored_boards():
    rows = ["####", "#@ #", "#$ #", "###."]
    assert len(set(eight(rows))) == 8 and len({same(version.split("\n")) for version in eight(rows)}) == 1
    assert same(rows) != same(["####", "# @#", "#$ #", "###."])


def rooms(level):
    return set(eight(["".join("# "[(r, c) not in level.walls] for c in range(level.size[1])) for r in range(level.size[0])]))


def test_no_level_is_there_twice_and_unseen_rooms_are_unseen(made):
    seen = set()
    for split, number in NUMBERS.items():
        assert len(made[split]) == number
        for level in made[split]:
            versions = set(eight(draw(level, level.player, level.boxes)))
            assert not versions & seen
            seen |= versions
    trained = set().union(*map(rooms, made["train"]))
    assert all(rooms(level) & trained for level in made["valid_seen"])
    assert not any(rooms(level) & trained for level in made["valid_unseen"])


@pytest.mark.parametrize("size, boxes", [((6, 6), 1), ((7, 9), 2), ((6, 6), 3)])
def test_made_levels_are_solvable_and_start_unsolved(size, boxes):
    for level in make_levels({"train": 8}, size, boxes, 1)["train"]:
        moves, state = solve(level), (level.player, level.boxes)
        assert len(moves) == level.optimum >= 1 and len(level.boxes) == len(level.targets) == boxes
        assert not level.boxes & level.targets and level.player not in level.boxes | level.walls
        for move in moves:
            state = push(level, *state, move)
        assert state[1] == level.targets
        rim = {(r, c) for r in range(size[0]) for c in range(size[1]) if r in (0, size[0] - 1) or c in (0, size[1] - 1)}
        assert rim <= level.walls


def test_default_levels_are_about_as_hard_as_the_originals(made):
    """The original's: mean 3.95 moves, at most 12 in 1,000 (levels that repeat, mostly easy ones, included)."""
    moves = [level.optimum for level in made["train"]]
    assert 3.5 < sum(moves) / len(moves) < 6 and max(moves) <= 15 and min(moves) <= 2


def test_rooms_are_connected():
    for seed in range(30):
        floor = set(floor_plan(random.Random(seed), (6, 6)))
        reached, left = set(), [min(floor)]
        while left:
            r, c = left.pop()
            reached.add((r, c))
            left += [cell for cell in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)) if cell in floor and cell not in reached]
        assert reached == floor and all(1 <= r <= 4 and 1 <= c <= 4 for r, c in floor)


def test_a_room_that_is_too_small_gives_no_level():
    assert place(random.Random(0), [(1, 1), (1, 2)], (6, 6), 1) is None
    assert isinstance(next(filter(None, (place(random.Random(s), [(1, c) for c in range(1, 5)], (6, 6), 1) for s in range(9)))), Level)
    with pytest.raises(UserError, match="only .* different train levels of 5x5 with 1"):
        make_levels({"train": 10_000}, (5, 5), 1, 0)
