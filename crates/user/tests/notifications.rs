//! Changes that a guest is told over the notification queue, end to end: `transomd` observes a directory in which this
//! process, and the guest of another daemon, make changes.

mod common;

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use common::{transomd, tree};
use transom_user::{
    guest::{
        Platform as _,
        cache::CacheOptions,
        channel::Channel as _,
        dax::DaxOptions,
        device::{Settings, feature},
        fs::Fs,
        session::{Changes, SessionConfig},
    },
    platform::Process,
    share::Share,
};
use transom_wire::{agent::Kind, notification::Notification};

/// The bound of each wait, which takes milliseconds.
const WITHIN: Duration = Duration::from_secs(60);
/// Changes that the daemon keeps for a guest that takes none.
const KEPT: usize = 1024;

/// Sets the flag when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A daemon and its guest.
struct Guest {
    share: Share,
    fs: Fs<Process>,
}

impl Guest {
    fn start(shared: &Path, buffers: u16, options: &[&str]) -> Result<Self, String> {
        let mut program = transomd();
        program.args = options.iter().map(Into::into).collect();
        let settings = Settings { notification_buffers: buffers, ..Settings::default() };
        let builder = Share::builder().shared_dir(shared).daemon(program).settings(settings);
        let share = builder.connect().map_err(|error| error.to_string())?;
        let volume = share.volume(SessionConfig::default(), CacheOptions::default(), DaxOptions::default()).unwrap();
        Ok(Self { share, fs: Fs::new(Arc::new(volume)) })
    }

    /// Starts a daemon with a notification queue. Returns `None` where changes cannot be observed, and says why.
    fn told(shared: &Path, buffers: u16) -> Option<Self> {
        match Self::start(shared, buffers, &["--notification-queue", "--tag=share"]) {
            Ok(guest) => Some(guest),
            Err(error) if error.contains("cannot observe") => {
                println!("SKIPPED: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn changes(&self) -> Changes {
        self.fs.volume().changes().expect("the daemon offers the queue, and it was asked for")
    }
}

/// What a change says: kind, name, new name.
type Told = (Kind, String, String);

/// Returns the next change, or `None` if changes were lost.
fn next(changes: &mut Changes) -> Option<Told> {
    let deadline_ns = Process.now_ns() + WITHIN.as_nanos() as u64;
    match changes.next(Some(deadline_ns)).unwrap().expect("a change is told") {
        Notification::Change(change) => {
            let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            Some((change.kind, name(change.name), name(change.new_name)))
        }
        Notification::Lost => None,
        Notification::Ended => panic!("the daemon sees no more changes"),
    }
}

/// Waits for a change, past others.
fn wait_for(changes: &mut Changes, kind: Kind, name: &str, new_name: &str) {
    let wanted = (kind, name.to_owned(), new_name.to_owned());
    while next(changes).expect("nothing is lost") != wanted {}
}

#[test]
fn changes_of_the_host_and_of_other_guests_arrive_with_names() {
    let share = tree();
    let at = |name: &str| share.path().join(name);
    let Some(guest) = Guest::told(share.path(), 8) else { return };
    let mut changes = guest.changes();
    assert_eq!(guest.fs.read_dir("sub").unwrap().count(), 1, "the guest knows the directory");
    fs::write(at("sub/new"), b"x").unwrap();
    wait_for(&mut changes, Kind::Created, "new", "");
    wait_for(&mut changes, Kind::Closed, "new", "");
    fs::rename(at("sub/new"), at("sub/newer")).unwrap();
    wait_for(&mut changes, Kind::Renamed, "new", "newer");
    fs::remove_file(at("sub/newer")).unwrap();
    wait_for(&mut changes, Kind::Removed, "newer", "");
    // Of another daemon's guest; what this guest does itself is not told.
    let other = Guest::start(share.path(), 0, &[]).unwrap();
    guest.fs.create_dir("own", 0o755).unwrap();
    other.fs.create_dir("sub/theirs", 0o755).unwrap();
    loop {
        let (kind, name, _) = next(&mut changes).unwrap();
        assert_ne!(name, "own");
        if (kind, &*name) == (Kind::Created, "theirs") {
            break;
        }
    }
}

#[test]
fn a_guest_that_takes_nothing_is_served_and_told_of_the_loss_once_it_does() {
    let share = tree();
    for buffers in [1, 8] {
        let Some(guest) = Guest::told(share.path(), buffers) else { return };
        let mut changes = guest.changes();
        let before = guest.fs.read_dir(".").unwrap().count();
        let count = KEPT + 64;
        for number in 0..count {
            fs::create_dir(share.path().join(format!("{buffers}-{number}"))).unwrap();
        }
        assert_eq!(guest.fs.read_dir(".").unwrap().count(), before + count);
        // The daemon may see the changes late, when some have been taken: there are more until one is lost.
        let is_lost = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in (count..).take_while(|_| !is_lost.load(Relaxed)) {
                    fs::create_dir(share.path().join(format!("{buffers}-{number}"))).unwrap();
                }
            });
            // Also if there is a panic.
            let _stop = Stop(&is_lost);
            while next(&mut changes).is_some() {}
        });
        // What comes after it is told again.
        fs::create_dir(share.path().join(format!("{buffers}-last"))).unwrap();
        while next(&mut changes).is_none_or(|(_, name, _)| name != format!("{buffers}-last")) {}
    }
}

#[test]
fn a_wait_ends_at_its_deadline_and_with_the_daemon() {
    let share = tree();
    let Some(guest) = Guest::told(share.path(), 4) else { return };
    let mut changes = guest.changes();
    assert_eq!(changes.next(Some(Process.now_ns())), Ok(None));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| changes.next(None).err());
        guest.share.device().transport().hang_up();
        assert!(waiter.join().unwrap().is_some());
    });
}

#[test]
fn a_guest_that_does_not_ask_for_the_queue_is_served_as_without_it() {
    let share = tree();
    let Some(guest) = Guest::told(share.path(), 0) else { return };
    assert_eq!(guest.share.device().features() & feature::NOTIFICATION, 0);
    assert!(guest.fs.volume().changes().is_none());
    assert!(guest.fs.exists("hello").unwrap());
    // Nor is one that asks for it and does not get it.
    let queues = guest.share.device().request_queues();
    let guest = Guest::start(share.path(), 8, &["--tag=share"]).unwrap();
    assert!(guest.fs.volume().changes().is_none());
    assert_eq!(guest.share.device().request_queues(), queues);
    assert!(guest.fs.exists("hello").unwrap());
}
