//! Every operation of FUSE has a slope, or a reason why it has none.

use std::collections::BTreeSet;

use transom_wire::Opcode;

use super::{
    repeated,
    rows::{File, ROWS},
    state,
};

/// What repeats an operation.
enum Slope {
    /// A row of [`ROWS`].
    Row,
    /// A test of its own, since the operation leaves something behind.
    Test(fn()),
    /// None, for this reason.
    Excluded(&'static str),
}

use Slope::{Excluded, Row, Test};

/// The match is exhaustive on purpose: a new operation does not compile without an entry.
fn slope(opcode: Opcode) -> Slope {
    match opcode {
        Opcode::Init | Opcode::Destroy => Test(repeated::sessions_that_begin_and_end_leave_nothing),
        Opcode::Mknod | Opcode::Symlink => Test(state::nodes_that_are_never_forgotten_meet_a_limit),
        Opcode::Open => Test(state::opens_of_one_file_meet_a_limit),
        Opcode::Create => Test(state::files_that_are_never_released_meet_a_limit),
        Opcode::Tmpfile => Test(state::files_without_names_that_are_never_released_meet_a_limit),
        Opcode::Opendir => Test(state::directories_that_are_read_and_never_released_take_little_memory_each),
        Opcode::Lookup
        | Opcode::Forget
        | Opcode::Getattr
        | Opcode::Setattr
        | Opcode::Readlink
        | Opcode::Mkdir
        | Opcode::Unlink
        | Opcode::Rmdir
        | Opcode::Rename
        | Opcode::Link
        | Opcode::Read
        | Opcode::Write
        | Opcode::Statfs
        | Opcode::Release
        | Opcode::Fsync
        | Opcode::Setxattr
        | Opcode::Getxattr
        | Opcode::Listxattr
        | Opcode::Removexattr
        | Opcode::Flush
        | Opcode::Readdir
        | Opcode::Releasedir
        | Opcode::Fsyncdir
        | Opcode::Getlk
        | Opcode::Setlk
        | Opcode::Setlkw
        | Opcode::Access
        | Opcode::Interrupt
        | Opcode::Bmap
        | Opcode::Ioctl
        | Opcode::Poll
        | Opcode::BatchForget
        | Opcode::Fallocate
        | Opcode::Readdirplus
        | Opcode::Rename2
        | Opcode::Lseek
        | Opcode::CopyFileRange
        | Opcode::Setupmapping
        | Opcode::Removemapping
        | Opcode::Statx
        | Opcode::CopyFileRange64 => Row,
        Opcode::Syncfs => Excluded("it writes out the host's whole file system, which takes hours if repeated"),
        Opcode::NotifyReply => Excluded("the server drops it unread: there is no notification to reply to"),
    }
}

#[test]
fn every_operation_is_repeated_or_has_a_reason_not_to_be() {
    let nothing = File { nodeid: 0, fh: 0, link: 0, dir_fh: 0 };
    let in_rows: BTreeSet<u32> =
        ROWS.iter().flat_map(|(_, requests)| requests(nothing, 0)).map(|request| request.opcode as u32).collect();
    for &opcode in Opcode::ALL {
        let is_in_rows = in_rows.contains(&(opcode as u32));
        match slope(opcode) {
            Row => assert!(is_in_rows, "{}: no row repeats it", opcode.name()),
            Test(test) => {
                // That there is such a test, the compiler has seen.
                let _: fn() = test;
            }
            Excluded(reason) => assert!(!is_in_rows && !reason.is_empty(), "{}", opcode.name()),
        }
    }
}
