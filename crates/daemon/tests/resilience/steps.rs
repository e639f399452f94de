//! A death at each step of the journal, for each of some requests: all are done once, and answered as without a death.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
};

use crate::{Guest, launch::Bench};

/// What the log says if the process has died.
const DIED: &str = "the daemon goes on in another process";
const READ_WRITE: u32 = libc::O_RDWR as u32;

/// What the driver does: each operation that must not be done twice, and some that may.
fn work(guest: &mut Guest) {
    let session = &mut guest.session;
    let exclusive = session.create(1, b"exclusive", READ_WRITE | libc::O_EXCL as u32, 0o400).unwrap();
    let (file, fh) = (exclusive.entry.nodeid.get(), exclusive.open.fh.get());
    session.write(file, fh, 0, b"positioned").unwrap();
    for number in 0..3 {
        append(session, file, fh, format!(" appended {number}").as_bytes());
    }
    let plain = session.create(1, b"plain", READ_WRITE, 0o444).unwrap();
    session.write(plain.entry.nodeid.get(), plain.open.fh.get(), 0, b"plain").unwrap();
    let dir = session.mkdir(1, b"dir", 0o755).unwrap().nodeid.get();
    session.mknod(dir, b"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
    session.symlink(dir, b"symlink", b"target").unwrap();
    assert_eq!(session.link(file, dir, b"linked").unwrap().attr.nlink.get(), 2);
    session.rename((1, b"plain"), (dir, b"renamed")).unwrap();
    session.mkdir(dir, b"below", 0o700).unwrap();
    session.rmdir(dir, b"below").unwrap();
    session.create(dir, b"replaced", READ_WRITE, 0o600).unwrap();
    session.rename((1, b"exclusive"), (dir, b"replaced")).unwrap();
    session.rename2((dir, b"fifo"), (dir, b"symlink"), libc::RENAME_EXCHANGE).unwrap();
    session.unlink(dir, b"linked").unwrap();
    session.mkdir(1, b"exists", 0o700).unwrap();
    assert!(session.mkdir(1, b"exists", 0o700).is_err());
    assert!(session.unlink(1, b"absent").is_err());
    // Lookups and references are counted once each.
    let seen = session.lookup(dir, b"fifo").unwrap().nodeid.get();
    let before = session.getattr(seen, None).unwrap().ino.get();
    session.forget(seen, 1).unwrap();
    assert_eq!(session.getattr(seen, None).unwrap().ino.get(), before);
    session.forget(seen, 1).unwrap();
    assert!(session.getattr(seen, None).is_err(), "the references are used up");
    assert_eq!(session.read(file, fh, 0, 100).unwrap(), CONTENT.as_bytes());
    session.release(file, fh).unwrap();
}

const CONTENT: &str = "positioned appended 0 appended 1 appended 2";

fn append(
    session: &mut transom_frontend::fuse::Session<transom_frontend::queue::Queue>,
    file: u64,
    fh: u64,
    data: &[u8],
) {
    use transom_wire::{Opcode, ops::write::WriteIn};
    use zerocopy::{FromZeros as _, IntoBytes as _};
    let mut arg = WriteIn::new_zeroed();
    arg.fh = fh.into();
    arg.size = (data.len() as u32).into();
    arg.flags = ((libc::O_RDWR | libc::O_APPEND) as u32).into();
    let reply = session.request(Opcode::Write as u32, file, &[arg.as_bytes(), data], 8).unwrap();
    assert_eq!(reply[..4], (data.len() as u32).to_le_bytes());
}

/// Checks what the work has left on the host.
fn check(bench: &Bench, when: &str) {
    let share = bench.share();
    let names = |path: &std::path::Path| {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    assert_eq!(names(&share), ["dir", "exists"], "{when}");
    let dir = share.join("dir");
    assert_eq!(names(&dir), ["fifo", "renamed", "replaced", "symlink"], "{when}");
    assert_eq!(fs::read_to_string(dir.join("replaced")).unwrap(), CONTENT, "{when}");
    assert_eq!(fs::metadata(dir.join("replaced")).unwrap().nlink(), 1, "{when}");
    assert_eq!(fs::read_to_string(dir.join("renamed")).unwrap(), "plain", "{when}");
    assert_eq!(fs::read_link(dir.join("fifo")).unwrap().to_str(), Some("target"), "{when}");
    assert!(fs::symlink_metadata(dir.join("symlink")).unwrap().file_type().is_fifo(), "{when}");
}

/// Lets the process die at every occurrence of a step, one in each run.
fn die_at_each(step: &str) {
    let mut deaths = 0;
    loop {
        let when = format!("{step}:{deaths}");
        let bench = Bench::new();
        let args = "--socket-path {S} --shared-dir {D} --resilient";
        let mut daemon = bench.start_with(args, |command| _ = command.env("TRANSOMD_TEST_DEATH", &when));
        let mut guest = Guest::begin(&mut daemon);
        work(&mut guest);
        drop(guest);
        let (status, said) = daemon.wait();
        assert!(status.success(), "{when}: {status}: {said}");
        check(&bench, &when);
        if !said.contains(DIED) {
            break;
        }
        deaths += 1;
    }
    println!("{step}: {deaths} deaths");
    assert!(deaths > 0, "nothing is done at {step}");
}

#[test]
fn deaths_when_requests_are_taken() {
    die_at_each("taken");
}

#[test]
fn deaths_before_a_record_counts() {
    die_at_each("written");
}

#[test]
fn deaths_after_a_record() {
    die_at_each("logged");
}

#[test]
fn deaths_between_an_intent_and_the_change() {
    die_at_each("intended");
}

#[test]
fn deaths_between_a_change_and_its_record() {
    die_at_each("done");
}

#[test]
fn deaths_before_a_reply_counts() {
    die_at_each("served");
}

#[test]
fn deaths_before_a_reply_is_published() {
    die_at_each("answered");
}

#[test]
fn deaths_after_a_reply_is_published() {
    die_at_each("published");
}
