"""Runs commands in throwaway virtual machines that have a directory of this host.

    with Sandbox("DIR", overlay=True) as sandbox:
        sandbox.run(["sh", "-c", "echo new > file"])
        sandbox.diff()      # what has changed; the directory is as it was
        sandbox.commit()    # writes it into the directory

See docs/run.md for what a guest can read and change.
"""

import json
import os
import secrets
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
    #: The object of `transom run --json`, or of `transom exec --json`.
    report: dict = field(default_factory=dict)


class Sandbox:
    """A directory of this host, for commands in guests.

    overlay   the directory stays as it is until `commit()`
    root      the guest's root: a directory of the host, "/" for the host's own; by default a minimal one
    keep      keep changes that are not committed when the block ends, and continue with those of earlier runs
    options   further arguments of `transom run`, such as ["--memory", "4G"]
    one_machine  in a `with` block, all commands run in one machine, so that they start fast and see what others have
              left in its memory and running; False for a new machine for each
    transom   the program [default: $TRANSOM, or `transom` in PATH]
    """

    def __init__(self, directory, *, overlay=False, root=None, keep=False, options=(), one_machine=True,
                 transom=None):
        self.directory = os.path.abspath(os.fspath(directory))
        self.overlay = overlay
        self.root = root
        self.keep = keep
        self.options = list(options)
        self.one_machine = one_machine
        self._is_in_block = False
        # The name of the machine that runs, if there is one.
        self._machine = None
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
        self._is_in_block = True
        return self

    def __exit__(self, *_):
        self._is_in_block = False
        try:
            self._stop()
        finally:
            if self.overlay and not self.keep and not self._unsaved:
                self.discard()

    def run(self, command, *, timeout=None, env=None, user=None, workdir=None, input=None, text=True):
        """Runs a command, a list of words, and waits for its end.

        It runs in the machine of the `with` block, which the first command starts; without a block, or with
        `one_machine=False`, in a new one.
        The command gets the variables of `env`, and `input` as standard input. Raises `Error` if there was no guest.
        """
        if isinstance(command, (str, bytes)):
            raise TypeError("a command is a list of words: [\"sh\", \"-c\", \"...\"]")
        if self._is_in_block and self.one_machine:
            arguments, last = ["exec", "--tty=never"], [self._started()]
        else:
            arguments, last = ["run", "--tty=never", *self._machine_arguments()], []
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
            arguments += [f"--json={path}", *last, "--", *command]
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

    def copy_in(self, source, to):
        """Copies a file or a tree of this host to a path in the machine of the `with` block."""
        self._checked(["cp", os.path.abspath(os.fspath(source)), f"{self._copying()}:{os.fspath(to)}"])

    def copy_out(self, source, to):
        """Copies a file or a tree of the machine of the `with` block to a path of this host."""
        self._checked(["cp", f"{self._copying()}:{os.fspath(source)}", os.path.abspath(os.fspath(to))])

    def diff(self):
        """Returns what has changed: a list of objects with path, change, kind, bytes and mode.

        As `patch`, `commit` and `discard`, it ends the machine of the block first: nobody else can use an overlay
        meanwhile. The next command starts another one.
        """
        self._stop()
        return json.loads(self._checked(["diff", "--json", self.directory]))["changes"]

    def patch(self):
        """Returns the changes of text as a unified diff, as bytes."""
        self._stop()
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
            self._stop()
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
        self._stop()
        self._checked(["discard", "--", self.directory, *words])
        if not words:
            self._unsaved = []

    def _machine_arguments(self):
        """Returns the arguments of `transom run` for the machine."""
        share = self.directory.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
        root = [] if self.root is None else ["--root", os.fspath(self.root)]
        return ["--share", share + (",overlay" if self.overlay else ""), *root, *self.options]

    def _started(self):
        """Returns the name of the machine, which is started if there is none."""
        if self._machine is None:
            name = f"python-{os.getpid()}-{secrets.token_hex(4)}"
            try:
                self._checked(["run", "--keep", name, *self._machine_arguments()])
            except Error as error:
                raise Error(f"{error}\n(one_machine=False starts a machine for each command)") from None
            self._machine = name
        return self._machine

    def _copying(self):
        if not (self._is_in_block and self.one_machine):
            raise Error("files are copied into and out of the machine of a `with` block, without one_machine=False")
        return self._started()

    def _stop(self):
        name, self._machine = self._machine, None
        if name is not None:
            self._checked(["stop", name])

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
