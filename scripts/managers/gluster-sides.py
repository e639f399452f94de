"""What one mount over a volume sees of the other: gluster-sides.py seen A B|later|locks|handles"""
import fcntl
import os
import sys
import time

A, B = "/t/a", "/t/b"
# Far beyond the second for which a mount and GlusterFS's own client may cache.
LATER_S = 60


def same(name, expected, found):
    print(f"ok: {name}" if expected == found else f"FAIL: {name}\n  expected: {expected}\n  found:    {found}")


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        return error.strerror


def until(wanted, look):
    """Looks until it finds what is wanted; returns what it found last."""
    end = time.monotonic() + LATER_S
    while (found := look()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return found


def seen():
    """Prints how often of 20 times an open on one side, after a close on the other, sees what was written."""
    one, other = sys.argv[2:]
    count = 0
    for number in range(20):
        text = f"round {number}\n" * (number + 1)
        write(f"{one}/seen", text)
        count += read(f"{other}/seen") == text
    print(count)


def later():
    write(f"{A}/later", "first")
    same("a new name appears on the other side", "first", until("first", lambda: read(f"{B}/later")))
    write(f"{A}/later", "second, longer")
    same("then its new contents", "second, longer", until("second, longer", lambda: read(f"{B}/later")))
    os.rename(f"{A}/later", f"{A}/renamed")
    same("a rename takes the old name away", False, until(False, lambda: os.path.exists(f"{B}/later")))
    same("and shows the new one", "second, longer", until("second, longer", lambda: read(f"{B}/renamed")))
    os.unlink(f"{A}/renamed")
    same("a removal arrives", False, until(False, lambda: os.path.exists(f"{B}/renamed")))


def refused(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return error.errno in (11, 13)
    return False


def exit_code(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def locks():
    with open(f"{A}/lock", "w") as ours:
        for kind, lock in [("a record lock", fcntl.lockf), ("a flock", fcntl.flock)]:
            # The other side's is of another process, as record locks of one process never conflict.
            lock(ours, fcntl.LOCK_EX)
            pid = os.fork()
            if pid == 0:
                with open(f"{B}/lock", "r+") as theirs:
                    os._exit(0 if refused(lock, theirs, fcntl.LOCK_EX | fcntl.LOCK_NB) else 1)
            same(f"{kind} of one side is refused on the other", 0, exit_code(pid))
            lock(ours, fcntl.LOCK_UN)
            pid = os.fork()
            if pid == 0:
                with open(f"{B}/lock", "r+") as theirs:
                    os._exit(1 if refused(lock, theirs, fcntl.LOCK_EX | fcntl.LOCK_NB) else 0)
            same(f"{kind} is free on the other once it is released", 0, exit_code(pid))


def handles():
    os.makedirs(f"{A}/many")
    for number in range(2000):
        write(f"{A}/many/{number}", str(number))
    found = [read(f"{A}/many/{number}") for number in range(2000)]
    same("2000 files are found again by file handles", [str(number) for number in range(2000)], found)
    os.rename(f"{A}/many", f"{A}/moved")
    same("below a renamed directory too", "1999", read(f"{A}/moved/1999"))


{"seen": seen, "later": later, "locks": locks, "handles": handles}[sys.argv[1]]()
