//! Which requests of the agent reach the file system, as what, and which are refused.

use transom_wire::{
    Opcode,
    agent::{AGENT_GID, EXCHANGE},
    attr::{AttrOut, EntryOut},
    header::OutHeader,
    linux::{RENAME_EXCHANGE, RENAME_NOREPLACE},
    ops::{init::InitFlags, ioctl::IoctlIn, open::OpenOut, setattr::SetattrIn},
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    recorder_test::{Recorder, ask, begun_with, hand_in, message_of},
    *,
};

const ROOM: usize = 4096;

fn send(server: &Server<Recorder>, opcode: Opcode, body: &[u8]) -> Result<(), Errno> {
    hand_in(server, message_of(AGENT_GID, opcode, body), ROOM).0.result
}

/// Sends a request; returns what the file system is asked about, if anything.
fn asked(server: &Server<Recorder>, opcode: Opcode, body: &[u8]) -> Vec<String> {
    let _ = send(server, opcode, body);
    server.file_system().seen()
}

#[test]
fn only_the_agents_group_is_the_agents() {
    let server = begun_with(InitFlags::empty());
    for gid in [0, AGENT_GID - 1, AGENT_GID + 1] {
        let (done, _) = hand_in(&server, message_of(gid, Opcode::Mkdir, b"12345678name\0"), ROOM);
        assert_eq!((done.result, server.file_system().seen().len()), (Err(Errno::NOSYS), 0), "served as any other");
    }
    assert_eq!(asked(&server, Opcode::Mkdir, b"12345678name\0").len(), 1);
}

#[test]
fn each_change_is_told_with_its_names_and_kind() {
    let server = begun_with(InitFlags::empty());
    let root = "NodeId(0x1)";
    let name = |text: &str| format!("{:?}", transom_wire::Name::new(text.as_bytes()).unwrap());
    let (a, b) = (name("a"), name("b"));
    let to = [9, 0, 0, 0, 0, 0, 0, 0];
    let mknod = |mode: u32| [&mode.to_le_bytes()[..], &[0; 12], b"a\0"].concat();
    let rename2 = |flags: u32| [&to[..], &flags.to_le_bytes(), &[0; 4], b"a\0b\0"].concat();
    let renamed = |is_exchange| format!("Rename(({root}, {a}), (NodeId(0x9), {b}), {is_exchange})");
    let cases = [
        (Opcode::Lookup, b"a\0".to_vec(), format!("Lookup({root}, {a})")),
        (Opcode::Mknod, mknod(0o644), format!("Make({root}, {a}, RegularFile)")),
        (Opcode::Mknod, mknod(0o100_644), format!("Make({root}, {a}, RegularFile)")),
        (Opcode::Mknod, mknod(0o020_644), format!("Make({root}, {a}, CharacterDevice)")),
        (Opcode::Mknod, mknod(0o010_644), format!("Make({root}, {a}, Fifo)")),
        (Opcode::Mkdir, b"12345678a\0".to_vec(), format!("Make({root}, {a}, Directory)")),
        (Opcode::Symlink, b"a\0target\0".to_vec(), format!("Make({root}, {a}, Symlink)")),
        (Opcode::Unlink, b"a\0".to_vec(), format!("Remove({root}, {a}, false)")),
        (Opcode::Rmdir, b"a\0".to_vec(), format!("Remove({root}, {a}, true)")),
        (Opcode::Rename, [&to[..], b"a\0b\0"].concat(), renamed(false)),
        (Opcode::Rename2, rename2(0), renamed(false)),
        (Opcode::Rename2, rename2(RENAME_NOREPLACE), renamed(false)),
        (Opcode::Rename2, rename2(RENAME_EXCHANGE), renamed(true)),
        (Opcode::Getattr, vec![0; 16], format!("Getattr({root})")),
    ];
    for (opcode, body, expected) in cases {
        assert_eq!(asked(&server, opcode, &body)[0], expected);
    }
    assert!(asked(&server, Opcode::Open, &[0; 8])[0].starts_with("Open(NodeId(0x1), OpenIn"));
    assert!(asked(&server, Opcode::Setattr, &[0; 88])[0].starts_with("Setattr(NodeId(0x1), SetattrValid"));
}

#[test]
fn a_malformed_request_of_the_agent_asks_nothing() {
    let server = begun_with(InitFlags::empty());
    let mut unknown = SetattrIn::new_zeroed();
    unknown.valid = u32::MAX.into();
    let cases: [(Opcode, &[u8]); 6] = [
        (Opcode::Lookup, b"a"),
        (Opcode::Mkdir, b"1234567"),
        (Opcode::Rename, b"12345678a\0b"),
        (Opcode::Open, &[0; 7]),
        (Opcode::Setattr, unknown.as_bytes()),
        (Opcode::Unlink, b"a/b\0"),
    ];
    for (opcode, body) in cases {
        assert_eq!((send(&server, opcode, body), server.file_system().seen().len()), (Err(Errno::INVAL), 0));
    }
}

#[test]
fn what_the_file_system_answers_is_the_reply() {
    let server = begun_with(InitFlags::empty());
    let entry = EntryOut { nodeid: 5.into(), ..EntryOut::default() };
    let attributes = AttrOut { attr_valid: 6.into(), ..AttrOut::default() };
    let opened = OpenOut { fh: 7.into(), ..OpenOut::new_zeroed() };
    let cases = [
        (AgentReply::Done, Vec::new()),
        (AgentReply::Entry(entry), entry.as_bytes().to_vec()),
        (AgentReply::Attributes(attributes), attributes.as_bytes().to_vec()),
        (AgentReply::Opened(opened), opened.as_bytes().to_vec()),
    ];
    for (answer, body) in cases {
        *server.file_system().to_agent.lock().unwrap() = Some(answer);
        let (done, reply) = hand_in(&server, message_of(AGENT_GID, Opcode::Lookup, b"a\0"), ROOM);
        let header = OutHeader::read_from_prefix(&reply).unwrap().0;
        assert_eq!((done.result, header.error.get(), header.len.get() as usize), (Ok(()), 0, reply.len()));
        assert_eq!((&reply[16..], server.file_system().seen().len()), (&body[..], 1), "it is not served besides");
    }
    // Served as any other.
    assert_eq!(send(&server, Opcode::Lookup, b"a\0"), Err(Errno::NOENT));
    assert_eq!(server.file_system().seen().len(), 2);
}

#[test]
fn what_changes_nothing_is_served_and_every_other_change_is_refused() {
    use Opcode::*;
    let server = begun_with(InitFlags::empty());
    let body = |opcode: Opcode| if opcode == Removexattr { b"user.a\0".to_vec() } else { vec![0; 200] };
    let refused = [
        Link,
        Create,
        Tmpfile,
        Write,
        Setxattr,
        Removexattr,
        Fallocate,
        CopyFileRange,
        CopyFileRange64,
        Setlk,
        Setlkw,
        Setupmapping,
        Ioctl,
    ];
    for opcode in refused {
        assert_eq!(send(&server, opcode, &body(opcode)), Err(Errno::PERM), "{opcode:?}");
    }
    let served = [
        Forget,
        BatchForget,
        Readlink,
        Read,
        Statfs,
        Release,
        Fsync,
        Getxattr,
        Listxattr,
        Flush,
        Opendir,
        Readdir,
        Readdirplus,
        Releasedir,
        Fsyncdir,
        Getlk,
        Access,
        Interrupt,
        Bmap,
        Poll,
        NotifyReply,
        Lseek,
        Syncfs,
        Statx,
        Removemapping,
    ];
    for opcode in served {
        assert_ne!(send(&server, opcode, &body(opcode)), Err(Errno::PERM), "{opcode:?}");
    }
    // The exchange, by which the agent and the daemon talk, and no other ioctl.
    let mut arg = IoctlIn::new_zeroed();
    for (cmd, result) in [(EXCHANGE, Err(Errno::NOSYS)), (EXCHANGE ^ 1, Err(Errno::PERM))] {
        arg.cmd = cmd.into();
        assert_eq!(send(&server, Ioctl, arg.as_bytes()), result);
    }
    server.file_system().seen();
    assert_eq!(send(&server, Destroy, &[]), Ok(()));
    assert_eq!(ask(&server, Statfs, &[]), Err(Errno::NOTCONN));
}
