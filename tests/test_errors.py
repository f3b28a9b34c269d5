"""seed/errors.py: what a person can mend ends in one line and a code; everything else keeps its traceback."""
import errno
import math

import pytest

from seed import errors
from seed.errors import UserError, check_finite, exit_cleanly, go_on_with


def ends(error, monkeypatch, capsys):
    """(exit code, what was written) of a main function that raises `error`."""
    monkeypatch.setattr(errors, "_go_on", "the same command again")

    @exit_cleanly
    def main():
        go_on_with("python x.py --resume")
        raise error
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code, capsys.readouterr().err


@pytest.mark.parametrize("error, code, text", [
    (UserError("--x is 0: expected 1"), 2, "error: --x is 0: expected 1\n"),
    (KeyboardInterrupt(), 130, "stopped; to go on, type: python x.py --resume\n"),
    (OSError(errno.ENOSPC, "No space left on device", "/full/file"), 2, "error: cannot write /full/file: No space left on device"),
    (OSError(errno.EROFS, "Read-only file system"), 2, "error: cannot write the run folder: Read-only"),
    (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried\nmore"), 2, "error: the GPU's memory does not hold this (CUDA out of memory. Tried)"),
])
def test_one_line_and_a_code(error, code, text, monkeypatch, capsys):
    got, written = ends(error, monkeypatch, capsys)
    assert got == code and written.startswith(text) and written.count("\n") == 1
    if isinstance(error, (OSError, RuntimeError)):
        assert "python x.py --resume" in written


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("x"), ConnectionError("x"), OSError(errno.EIO, "x")])
def test_a_bug_keeps_its_traceback(error):
    @exit_cleanly
    def main():
        raise error
    with pytest.raises(type(error)):
        main()


def test_what_is_returned_comes_back():
    assert exit_cleanly(lambda x, y=1: x + y)(2, y=3) == 5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_finite_is_told_with_its_place(value):
    check_finite([0.0, -1e300], "loss", "update 1")
    with pytest.raises(UserError, match="update 8, game 3: the loss is not finite"):
        check_finite(iter([1.0, value]), "loss", "update 8, game 3")
