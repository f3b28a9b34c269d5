"""One kind of error for everything that the user can mend.

`UserError` carries one line: what is wrong, what was expected, what to type instead. `exit_cleanly` turns it into that
line on stderr and exit code 2, and Ctrl-C into exit code 130; every other exception is a bug and keeps its traceback.
"""
import errno
import functools
import math
import sys
from typing import Iterable


_go_on = "the same command again"


def go_on_with(command: str) -> None:
    """What to type to go on from here, should the program be interrupted: it is printed then."""
    global _go_on
    _go_on = command


class UserError(Exception):
    """Bad input, a missing file, an impossible combination: something that the user can put right."""


def check_finite(values: Iterable[float], what: str, where: str) -> None:
    """Stop at the first number that is not finite; say what it is and where it came from."""
    if not all(map(math.isfinite, values)):
        raise UserError(f"{where}: the {what} is not finite; the last checkpoint is kept: start a new run from it (--init) with a "
                        f"smaller --learning-rate")


def exit_cleanly(main):
    """Decorate a script's main function: errors of the user's end in one line on stderr and exit code 2."""

    @functools.wraps(main)
    def wrapped(*args, **options):
        try:
            return main(*args, **options)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        except OSError as error:
            # Only what a person at the keyboard can mend; a ConnectionError inside our own code, say, stays a traceback.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
                raise
            print(f"error: cannot write {error.filename or 'the run folder'}: {error.strerror}; what was written so far is "
                  f"kept: make room (or choose another --out), then type: {_go_on}", file=sys.stderr)
            raise SystemExit(2) from None
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":  # torch's; this module does without torch
                raise
            print(f"error: the GPU's memory does not hold this ({str(error).splitlines()[0][:100]}): close other programs, or give a "
                  f"smaller --sample-tokens; to go on, type: {_go_on}", file=sys.stderr)
            raise SystemExit(2) from None
        except KeyboardInterrupt:
            print(f"stopped; to go on, type: {_go_on}", file=sys.stderr)
            raise SystemExit(130) from None

    return wrapped
