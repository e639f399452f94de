//! What `transom run --help` ends with.

pub(super) const EXAMPLES: &str = "\
Examples:
  transom run --share .
      Start a shell in a minimal guest, in the current directory.
  transom run --root / --share . -- make test
      Run a project's tests in a sandbox: every program of the host is available, and only this directory can change.
  transom run --share ~/data,ro -- sh -c 'sha256sum *' > sums
      Checksum the files of a directory; input, output and exit status are the command's.
  transom run --share /srv/models,dax=512M -- ./load
      Map large files into the guest instead of copying them; a last line reports how much was mapped.
  transom run --root / --share .,overlay -- make test
      The same, but the directory stays as it is: see what has changed with `transom diff`, then `transom commit .` or
      `transom discard .`.
  podman save IMAGE -o image.tar && transom run --root image.tar --share . -- make test
      Run a command in an image of a container.
  tar c . | transom run --share /srv/backup:/backup -- tar x -C /backup
      Mount a share at a given path.

Exit status:
  0-123    the command's own
  124      --timeout has passed
  125      this program failed: a usage error, something missing, a guest that did not boot
  126      the command cannot be run
  127      the command was not found
  128+N    signal N ended the command, or the run: 130 after Ctrl-C
Ctrl-] three times in a row, on a terminal, ends a command that Ctrl-C does not end.
A command can end with these too; then no error is printed after `transom:` on standard error.";
