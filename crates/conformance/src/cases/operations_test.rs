//! Every operation of FUSE has a case, or a reason why it has none.

use transom_wire::Opcode;

use super::all;

/// What sends an operation.
enum Sender {
    /// A case of the list.
    Case(&'static str),
    /// Nothing that a program does through a file system, for this reason.
    Other(&'static str),
}

use Sender::{Case, Other};

/// The match is exhaustive on purpose: a new operation does not compile without an entry.
fn sender(opcode: Opcode) -> Sender {
    match opcode {
        Opcode::Init | Opcode::Destroy => Other("every mount begins and ends a session"),
        Opcode::Forget | Opcode::BatchForget => Other("a client sends it when it needs memory; load/ makes it so"),
        Opcode::Bmap => Other("for block devices only; the host answers ENOSYS"),
        Opcode::Poll => Other("regular files are always ready; the host answers ENOSYS"),
        Opcode::NotifyReply => Other("answers a notification that the host never sends"),
        Opcode::Rename2 => Case("rename-flags/exchange-swaps-two-files"),
        Opcode::Setupmapping | Opcode::Removemapping => Case("mappings/shared-store-is-read-by-every-handle"),
        Opcode::Interrupt => Case("lock-waits/process-lock-is-interrupted-by-a-signal"),
        Opcode::Access => Case("access/each-right-is-judged-by-the-mode"),
        Opcode::Lookup => Case("names/a-name-that-was-missing-is-found-once-created-by-another-process"),
        Opcode::Getattr => Case("tree/inode-numbers-are-stable-and-different"),
        Opcode::Setattr => Case("modes/chmod-sets-all-twelve-bits-of-one's-own-file"),
        Opcode::Readlink => Case("symlinks/readlink-fills-a-short-buffer-and-says-no-more"),
        Opcode::Symlink => Case("symlinks/target-comes-back-byte-for-byte"),
        Opcode::Mknod => Case("special/mknod-makes-each-type-with-its-mode"),
        Opcode::Mkdir => Case("directories/new-one-is-empty-and-has-its-mode-and-owner"),
        Opcode::Unlink => Case("unlink/refuses-directories-and-missing-names"),
        Opcode::Rmdir => Case("directories/rmdir-refuses-full-ones-and-files"),
        Opcode::Rename => Case("rename/file-keeps-inode-data-and-links"),
        Opcode::Link => Case("links/a-second-name-shares-inode-data-and-attributes"),
        Opcode::Open => Case("create/without-exclusive-opens-what-is-there"),
        Opcode::Read | Opcode::Write => Case("data/what-is-written-is-read-at-any-alignment"),
        Opcode::Statfs => Case("tree/statfs-counts-blocks-and-tells-the-longest-name"),
        Opcode::Release | Opcode::Flush => Case("load/open-write-close-two-thousand-times"),
        Opcode::Fsync | Opcode::Syncfs => Case("data/fsync-fdatasync-and-syncfs-succeed-on-each-kind-of-handle"),
        Opcode::Setxattr | Opcode::Getxattr | Opcode::Listxattr | Opcode::Removexattr => {
            Case("xattrs/set-get-list-and-remove")
        }
        Opcode::Opendir | Opcode::Readdir | Opcode::Readdirplus | Opcode::Releasedir => {
            Case("streams/2200-entries-come-exactly-once")
        }
        Opcode::Fsyncdir => Case("directories/sync-of-a-directory-works"),
        Opcode::Getlk => Case("locks/process-query-names-the-first-lock-in-the-way"),
        Opcode::Setlk => Case("locks/process-write-lock-keeps-another-process-out"),
        Opcode::Setlkw => Case("lock-waits/process-lock-is-granted-when-its-holder-lets-go"),
        Opcode::Create => Case("create/new-file-is-empty-with-one-link"),
        Opcode::Tmpfile => Case("create/tmpfile-has-no-name-until-linked"),
        Opcode::Ioctl => Case("tree/inode-flags-are-read-and-set-where-the-host-has-them"),
        Opcode::Fallocate => Case("fallocate/plain-grows-with-zeros-and-keeps-data"),
        Opcode::Lseek => Case("holes/data-and-holes-are-found-by-seek"),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => Case("copies/across-files-byte-for-byte"),
        Opcode::Statx => Case("times/birth-time-stays"),
    }
}

#[test]
fn every_operation_has_a_case_or_a_reason_to_have_none() {
    for &opcode in Opcode::ALL {
        match sender(opcode) {
            Case(name) => assert!(all().any(|case| case.name == name), "{}: there is no case {name}", opcode.name()),
            Other(reason) => assert!(!reason.is_empty(), "{}", opcode.name()),
        }
    }
}
