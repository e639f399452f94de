"""Runs commands in throwaway virtual machines that have a directory of this host.

    with Sandbox("DIR", overlay=True) as sandbox:
        sandbox.run(["sh", "-c", "echo new > file"])
        sandbox.diff()      # what has changed; the directory is as it was
        sandbox.commit()    # writes it into the directory

See docs/run.md for what a guest can read and change.
"""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field

__all__ = ["Error", "Result", "Sandbox"]


class Error(Exception):
    """`transom` itself failed; the text is its message."""


@dataclass
class Result:
    """How a command ended."""

    status: int
    stdout: object
    stderr: object
    #: The object of `transom run --json`.
    report: dict = field(default_factory=dict)


class Sandbox:
    """A directory of this host, for commands in guests.

    overlay   the directory stays as it is until `commit()`
    root      the guest's root: a directory of the host, "/" for the host's own; by default a minimal one
    keep      keep changes that are not committed when the block ends, and continue with those of earlier runs
    options   further arguments of `transom run`, such as ["--memory", "4G"]
    transom   the program [default: $TRANSOM, or `transom` in PATH]
    """

    def __init__(self, directory, *, overlay=False, root=None, keep=False, options=(), transom=None):
        self.directory = os.path.abspath(os.fspath(directory))
        self.overlay = overlay
        self.root = root
        self.keep = keep
        self.options = list(options)
        # The arguments of commits that have failed: what they were to write is nowhere else.
        self._unsaved = []
        self.transom = transom or os.environ.get("TRANSOM") or "transom"
        if not os.path.isdir(self.directory):
            raise Error(f"{self.directory} is not a directory")

    def __enter__(self):
        if self.overlay and not self.keep and self.diff():
            raise Error(
                f"there are changes of earlier runs in an overlay of {self.directory}: "
                "`transom commit` or `transom discard` them, or continue with keep=True"
            )
        return self

    def __exit__(self, *_):
        if self.overlay and not self.keep and not self._unsaved:
            self.discard()

    def run(self, command, *, timeout=None, env=None, user=None, workdir=None, input=None, text=True):
        """Runs a command, a list of words, in a new guest, and waits for its end.

        The command gets the variables of `env`, and `input` as standard input. Raises `Error` if there was no guest.
        """
        if isinstance(command, (str, bytes)):
            raise TypeError("a command is a list of words: [\"sh\", \"-c\", \"...\"]")
        share = self.directory.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
        arguments = ["run", "--tty=never", "--share", share + (",overlay" if self.overlay else "")]
        if self.root is not None:
            arguments += ["--root", os.fspath(self.root)]
        if timeout is not None:
            arguments += ["--timeout", str(timeout)]
        if user is not None:
            arguments += ["--user", str(user)]
        if workdir is not None:
            arguments += ["--workdir", os.fspath(workdir)]
        for name, value in (env or {}).items():
            arguments += ["--env", f"{name}={value}"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            arguments += [f"--json={path}", *self.options, "--", *command]
            given = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
            done = self._call(arguments, text=text, **given)
            try:
                with open(path, encoding="utf-8") as file:
                    report = json.load(file)
            except FileNotFoundError:
                raise Error(_message(done.stderr)) from None
        # A command that takes too long has run.
        if report["error"] is not None and report["status"] != 124:
            raise Error(report["error"])
        return Result(done.returncode, done.stdout, done.stderr, report)

    def diff(self):
        """Returns what has changed: a list of objects with path, change, kind, bytes and mode."""
        return json.loads(self._checked(["diff", "--json", self.directory]))["changes"]

    def patch(self):
        """Returns the changes of text as a unified diff, as bytes."""
        return self._checked(["diff", "--patch", self.directory], text=False)

    def commit(self, paths=None, *, force=False):
        """Writes the changes of these paths into the directory: all by default, nothing for an empty list.

        If it raises, all changes are kept at the end of the block, unless the same or everything is committed later, or
        everything discarded.
        """
        words = _words(paths)
        if words is None:
            return
        try:
            self._checked(["commit", *(["--force"] if force else []), "--", self.directory, *words])
        except BaseException:
            self._unsaved.append(words)
            raise
        self._unsaved = [failed for failed in self._unsaved if words and failed != words]

    def discard(self, paths=None):
        """Throws the changes of these paths away: all by default, nothing for an empty list."""
        words = _words(paths)
        if words is None:
            return
        self._checked(["discard", "--", self.directory, *words])
        if not words:
            self._unsaved = []

    def _checked(self, arguments, text=True):
        done = self._call(arguments, text=text, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Error(_message(done.stderr))
        return done.stdout

    def _call(self, arguments, **options):
        if options.get("text"):
            options["errors"] = "replace"
        try:
            return subprocess.run([self.transom, *arguments], capture_output=True, check=False, **options)
        except FileNotFoundError:
            raise Error(f"{self.transom} is not installed, or not in PATH: set TRANSOM to the program") from None


def _words(paths):
    """Returns paths as arguments; none of them stand for all. Returns None if there is nothing to do."""
    if paths is None:
        return []
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError("paths are a list: [\"src\", \"docs/notes.md\"]")
    return [os.fspath(path) for path in paths] or None


def _message(stderr):
    text = stderr if isinstance(stderr, str) else stderr.decode(errors="replace")
    return text.strip().removeprefix("transom: ")
