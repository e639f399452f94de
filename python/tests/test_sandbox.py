"""Tests of the package with a guest; needs $TRANSOM. Run by crates/cli/tests/run_overlay.rs."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from transom import Error, Sandbox  # noqa: E402

LIMIT_S = 400


class Test(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.directory = os.path.join(folder.name, "with space, and comma")
        os.mkdir(self.directory)
        with open(os.path.join(self.directory, "a"), "w", encoding="utf-8") as file:
            file.write("one\n")

    def read(self, name):
        with open(os.path.join(self.directory, name), encoding="utf-8") as file:
            return file.read()

    def test_changes_are_seen_and_committed(self):
        with Sandbox(self.directory, overlay=True) as sandbox:
            script = 'cat; echo "$WORD" >> a; echo new > b; exit 3'
            result = sandbox.run(["sh", "-c", script], timeout=LIMIT_S, env={"WORD": "two"}, input="in")
            self.assertEqual((result.status, result.stdout, result.report["status"]), (3, "in", 3), result.stderr)
            changes = {change["path"]: change["change"] for change in sandbox.diff()}
            self.assertEqual(changes, {"a": "changed", "b": "added"})
            self.assertIn(b"+two\n", sandbox.patch())
            self.assertEqual(self.read("a"), "one\n")
            sandbox.commit([])
            self.assertEqual(self.read("a"), "one\n")
            sandbox.commit(["a"])
            self.assertEqual(self.read("a"), "one\ntwo\n")
        self.assertEqual(os.listdir(self.directory), ["a"])
        self.assertEqual(Sandbox(self.directory, overlay=True).diff(), [])

    def test_commands_of_a_block_share_a_machine(self):
        with Sandbox(self.directory, overlay=True) as sandbox:
            sandbox.run(["sh", "-c", "echo here > /tmp/left; echo two > a"])
            self.assertEqual(sandbox.run(["cat", "/tmp/left"]).stdout, "here\n")
            result = sandbox.run(["sleep", "1000"], timeout=0.5)
            self.assertEqual((result.status, result.report["status"]), (124, 124))
            self.assertEqual(sandbox.run(["no-such-program"]).status, 127)
            source = os.path.join(os.path.dirname(self.directory), "source: 1")
            os.mkdir(source)
            with open(os.path.join(source, "b"), "w", encoding="utf-8") as file:
                file.write("copied")
            sandbox.copy_in(source, "/tmp/in")
            sandbox.copy_out("/tmp/in", source)
            with open(os.path.join(source, "in", "b"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "copied")
            with self.assertRaisesRegex(Error, "No such file"):
                sandbox.copy_out("/no/file", source)
            # Ends the machine; the next command has another one.
            self.assertEqual([change["path"] for change in sandbox.diff()], ["a"])
            self.assertEqual(sandbox.run(["cat", "a", "/tmp/left"]).stdout, "two\n")
        self.assertEqual(self.read("a"), "one\n")

    def test_a_machine_for_each_command(self):
        with Sandbox(self.directory, one_machine=False) as sandbox:
            sandbox.run(["sh", "-c", "echo here > /tmp/left"], timeout=LIMIT_S)
            self.assertNotEqual(sandbox.run(["cat", "/tmp/left"], timeout=LIMIT_S).status, 0)
            with self.assertRaisesRegex(Error, "one_machine"):
                sandbox.copy_in("/etc/hostname", "/tmp")
        with self.assertRaisesRegex(Error, "(?s)--keep and --timeout exclude.*one_machine=False"):
            with Sandbox(self.directory, options=["--timeout", "9"]) as sandbox:
                sandbox.run(["true"])

    def test_what_transom_refuses_is_an_error(self):
        with self.assertRaisesRegex(Error, "unexpected argument '--no-such-option'"):
            Sandbox(self.directory, options=["--no-such-option"]).run(["true"])
        with self.assertRaises(Error):
            Sandbox("/no/such/directory")
        with self.assertRaises(TypeError):
            Sandbox(self.directory).run("true")
        with self.assertRaisesRegex(Error, "is not installed"):
            Sandbox(self.directory, transom="/no/transom").run(["true"])

    def stub(self, script):
        """Returns a program that notes its arguments, and the list of its notes so far."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path, notes = (os.path.join(folder.name, name) for name in ("transom", "notes"))
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$*" >> {notes}\n[ "$1" = diff ] && echo \'{{"changes": []}}\'\n{script}\n')
        os.chmod(path, 0o700)

        def words():
            with open(notes, encoding="utf-8") as file:
                return [line.split()[0] for line in file]

        return path, words

    def test_what_could_not_be_committed_is_kept(self):
        program, words = self.stub('[ "$1" != commit ] || { echo "transom: conflict" >&2; exit 1; }')
        with self.assertRaisesRegex(Error, "conflict"):
            with Sandbox(self.directory, overlay=True, transom=program) as sandbox:
                sandbox.commit()
        self.assertEqual(words(), ["diff", "commit"])

    def test_a_commit_that_succeeds_later_ends_the_overlay(self):
        program, words = self.stub('[ "$1 $2" != "commit --" ] || exit 1')
        with Sandbox(self.directory, overlay=True, transom=program) as sandbox:
            self.assertRaises(Error, sandbox.commit)
            sandbox.commit(force=True)
        self.assertEqual(words(), ["diff", "commit", "commit", "discard"])

    def test_a_commit_of_something_else_does_not_replace_one_that_failed(self):
        program, words = self.stub('[ "$1 $4" != "commit a" ] || exit 1')
        directory = os.path.join(os.path.dirname(self.directory), "plain")
        os.mkdir(directory)
        with Sandbox(directory, overlay=True, transom=program) as sandbox:
            self.assertRaises(Error, sandbox.commit, ["a"])
            sandbox.commit(["b"])
        self.assertEqual(words(), ["diff", "commit", "commit"])

    def test_an_empty_list_is_nothing(self):
        program, words = self.stub("exit 0")
        sandbox = Sandbox(self.directory, overlay=True, transom=program, keep=True)
        sandbox.commit([])
        sandbox.discard([])
        sandbox.discard(["a"])
        self.assertEqual(words(), ["discard"])
        self.assertRaises(TypeError, sandbox.commit, "a")


if __name__ == "__main__":
    unittest.main()
