//! A guest that does what its agent may do as often as it can.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use transom_wire::{
    Opcode,
    agent::{EXCHANGE, EXCHANGE_LEN, Hello, VERSION},
    ops::ioctl::{IOCTL_DIR, IoctlIn},
};
use zerocopy::{FromZeros, IntoBytes};

use crate::{Guest, PATIENCE, ROOT, errno, exchange};

/// Rounds to begin with, and then four times as many. Each sends some dozens of requests.
const ROUNDS: usize = 60;

/// Root directories that a round opens.
const HANDLES: usize = 20;

/// What the allocator may keep of what was freed. A flood that kept a reply of each exchange would take ten times that.
const MEMORY_SLACK_KIB: u64 = 8 * 1024;

/// What the daemon uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usage {
    memory_kib: u64,
    threads: u64,
    descriptors: usize,
}

impl Usage {
    fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Self { memory_kib: field("RssAnon:"), threads: field("Threads:"), descriptors }
    }
}

#[test]
fn a_flood_of_registrations_exchanges_and_changes_takes_nothing_for_good() {
    let Some(mut guest) = Guest::start("") else { return };
    let mut other = guest.start_other("");
    flood(&mut guest, &mut other, ROUNDS);
    let before = Usage::of(guest.daemon.serving_pid());

    flood(&mut guest, &mut other, 4 * ROUNDS);

    let deadline = Instant::now() + PATIENCE;
    let is_bounded = |after: Usage| {
        after.threads <= before.threads
            && after.descriptors <= before.descriptors
            && after.memory_kib <= before.memory_kib + MEMORY_SLACK_KIB
    };
    // The threads of requests that waited end a moment later.
    while !is_bounded(Usage::of(guest.daemon.serving_pid())) {
        let after = Usage::of(guest.daemon.serving_pid());
        assert!(Instant::now() < deadline, "before {before:?}, after {after:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    // An honest agent still gets what happens.
    let mut agent = guest.agent();
    guest.sh("mkdir in/last");
    agent.until(&mut guest, "last");
}

/// Does harm for some rounds, while the host changes the share; after each, another guest and this one are served.
fn flood(guest: &mut Guest, other: &mut Guest, rounds: usize) {
    for _ in 0..rounds {
        let handles: Vec<u64> = (0..HANDLES).map(|_| guest.session.opendir(ROOT).unwrap()).collect();
        for &handle in &handles {
            // Only the first one registers; none acknowledges what it was told.
            guest.as_agent(|session| _ = exchange(session, handle, 0));
            garbage(guest, handle);
        }
        other.session.mkdir(ROOT, b"made", 0o755).unwrap();
        // What it never had, and through handles that it closes without a word.
        guest.as_agent(|session| _ = exchange(session, handles[0], u32::MAX));
        other.session.rmdir(ROOT, b"made").unwrap();
        guest.session.uid = 1000;
        let refused = guest.as_agent(|session| exchange(session, handles[1], 0));
        assert_eq!(errno(refused), Some(Errno::PERM), "an ordinary user");
        guest.session.uid = 0;
        for handle in handles {
            guest.session.releasedir(ROOT, handle).unwrap();
        }
        guest.session.getattr(ROOT, None).unwrap();
        other.session.getattr(ROOT, None).unwrap();
    }
}

/// Sends invalid exchanges: too short, of another version, through a handle that is not open.
fn garbage(guest: &mut Guest, handle: u64) {
    for (handle, version, len) in [
        (handle, VERSION, 100),
        (handle, VERSION + 1, EXCHANGE_LEN),
        (handle, u32::MAX, EXCHANGE_LEN),
        (u64::MAX, VERSION, EXCHANGE_LEN),
    ] {
        let hello = Hello { version: version.into(), replayed: u32::MAX.into(), ..Hello::default() };
        let mut argument = vec![0xff; len];
        argument[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
        let arg = IoctlIn {
            fh: handle.into(),
            flags: IOCTL_DIR.into(),
            cmd: EXCHANGE.into(),
            in_size: (len as u32).into(),
            out_size: (EXCHANGE_LEN as u32).into(),
            ..IoctlIn::new_zeroed()
        };
        let parts = [arg.as_bytes(), &argument];
        let answer = guest.as_agent(|session| session.request(Opcode::Ioctl as u32, ROOT, &parts, 16 + EXCHANGE_LEN));
        assert!(errno(answer).is_some(), "{version} {len}");
    }
}
