//! How replies of a new daemon change the tables.

use parking_lot::Mutex;
use rustix::io::Errno;
use transom_wire::{NodeId, Opcode, ops::open::OpenOut};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::{
    Tables,
    inodes::DaemonNode,
    queries::QuerySet as _,
    restore::{FileReopens, InodeLookups},
    tables_test::{entry, entry_name, look_up, lose_daemon, open},
};

/// Returns tables with one file whose daemon is gone, and its number for the kernel.
fn lost() -> (Mutex<Tables>, NodeId) {
    let mut tables = Tables::default();
    let nodeid = NodeId(look_up(&mut tables, "file", 700, 5));
    lose_daemon(&mut tables);
    (Mutex::new(tables), nodeid)
}

#[test]
fn a_name_is_given_up_only_where_there_is_nothing_of_that_name() {
    for (errno, is_kept) in
        [(Errno::NOENT, false), (Errno::NOTDIR, false), (Errno::ACCESS, true), (Errno::IO, true), (Errno::LOOP, true)]
    {
        let (tables, nodeid) = lost();
        let mut names = InodeLookups::new(&tables);
        let (step, query) = names.next().unwrap();
        assert_eq!((query.opcode, query.node), (Opcode::Lookup, DaemonNode::ROOT));
        names.record_reply(step, Err(errno));
        assert!(names.next().is_none());
        // The next daemon is asked for it again, or not.
        let left = tables.lock().inodes.lost_in(NodeId::ROOT);
        assert_eq!(left, if is_kept { vec![(entry_name("file"), nodeid)] } else { vec![] }, "{errno}");
    }
    // An entry without a number says the same as ENOENT, and one that is too short says nothing.
    for (answer, is_kept) in [(entry(0, 0).as_bytes().to_vec(), false), (vec![0; 3], true)] {
        let (tables, _) = lost();
        let mut names = InodeLookups::new(&tables);
        let (step, _) = names.next().unwrap();
        names.record_reply(step, Ok(answer));
        assert_eq!(!tables.lock().inodes.lost_in(NodeId::ROOT).is_empty(), is_kept);
    }
}

#[test]
fn a_file_of_which_no_time_of_birth_can_be_got_is_not_taken_for_the_one_that_was_meant() {
    for (errno, is_found) in [(Errno::NOSYS, true), (Errno::IO, false)] {
        let (tables, nodeid) = lost();
        let mut names = InodeLookups::new(&tables);
        let (step, _) = names.next().unwrap();
        let mut later = entry(9, 5);
        later.attr.ctime = 200.into();
        names.record_reply(step, Ok(later.as_bytes().to_vec()));
        let (step, query) = names.next().unwrap();
        assert_eq!((query.opcode, query.node), (Opcode::Statx, DaemonNode(9)));
        names.record_reply(step, Err(errno));
        assert_eq!(tables.lock().inodes.daemon_of(nodeid).is_ok(), is_found);
        assert_eq!(tables.lock().owed.len(), usize::from(!is_found));
    }
}

#[test]
fn what_the_kernel_closes_while_it_is_opened_is_closed_in_the_daemon_too() {
    let mut tables = Tables::default();
    let nodeid = look_up(&mut tables, "file", 700, 5);
    let (stays, goes, gone) = (open(&mut tables, nodeid), open(&mut tables, nodeid), open(&mut tables, nodeid));
    lose_daemon(&mut tables);
    tables.inodes.found(NodeId(nodeid), DaemonNode(9), entry_name("file"));
    let tables = Mutex::new(tables);
    let mut files =
        FileReopens::new(&tables, [stays, goes, gone].map(|handle| (handle, wanted(&tables, handle))).into());
    let (first, second) = (files.next().unwrap(), files.next().unwrap());
    assert_eq!((first.1.opcode, second.1.opcode), (Opcode::Open, Opcode::Open));
    for handle in [goes, gone] {
        assert!(tables.lock().handles.released(handle).is_err());
    }
    for ((job, _), fh) in [(first, 41_u64), (second, 42)] {
        files.record_reply(job, Ok(OpenOut { fh: fh.into(), ..OpenOut::new_zeroed() }.as_bytes().to_vec()));
    }
    assert_eq!(tables.lock().handles.known(stays).unwrap().handle.0, 41);
    let (job, query) = files.next().unwrap();
    assert_eq!((query.opcode, &query.args[..8]), (Opcode::Release, &42_u64.to_le_bytes()[..]));
    files.record_reply(job, Ok(Vec::new()));
    assert!(files.next().is_none());
}

fn wanted(tables: &Mutex<Tables>, handle: transom_wire::Handle) -> super::handles::Opened {
    let wanted = tables.lock().handles.wanted();
    wanted.into_iter().find(|(other, _)| *other == handle).unwrap().1
}
