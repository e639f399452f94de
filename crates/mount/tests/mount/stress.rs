//! Guests of one coherence group that change and look at the same files while daemons of the group are killed.
//!
//! A guest of the library must see a change at its first look after the change was complete. A mount may be late, by a
//! time that is measured. `TRANSOM_STRESS_S=3600` makes an hour of it.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustix::process::{Pid, Signal, kill_process_group};
use transom_mount::Mount;
use transom_user::{
    guest::{
        cache::{CacheMode, CacheOptions},
        dax::DaxOptions,
        fs::{Fs, OpenOptions},
        session::SessionConfig,
        volume::SetTime,
    },
    platform::Process,
    share::Share,
};

use crate::{
    coherence::{WITHIN, coherent, member},
    common, needs_mounts, unmount,
};

/// How long it takes, without the variable.
const DURATION: Duration = Duration::from_secs(5);

/// What a guest does, whatever kind of guest it is. Each method fails if the share is gone.
trait Guest: Sync {
    fn store(&self, path: &str, round: u64) -> Option<()>;
    fn rename(&self, from: &str, to: &str) -> Option<()>;
    fn set_mtime(&self, path: &str, round: u64) -> Option<()>;
    fn load(&self, path: &str) -> Option<u64>;
    fn exists(&self, path: &str) -> Option<bool>;
    fn mtime(&self, path: &str) -> Option<u64>;
}

impl Guest for Fs<Process> {
    fn store(&self, path: &str, round: u64) -> Option<()> {
        self.open(path, &OpenOptions::new().write(true)).ok()?.write_at(0, &round.to_le_bytes()).ok().map(drop)
    }

    fn rename(&self, from: &str, to: &str) -> Option<()> {
        Fs::rename(self, from, to).ok()
    }

    fn set_mtime(&self, path: &str, round: u64) -> Option<()> {
        self.set_times(path, SetTime::Keep, SetTime::At(round as i64, 0), true).ok()
    }

    fn load(&self, path: &str) -> Option<u64> {
        let mut bytes = [0; 8];
        let len = self.open_read(path).ok()?.read_at(0, &mut bytes).ok()?;
        (len == 8).then(|| u64::from_le_bytes(bytes))
    }

    fn exists(&self, path: &str) -> Option<bool> {
        Fs::exists(self, path).ok()
    }

    fn mtime(&self, path: &str) -> Option<u64> {
        Some(self.metadata(path).ok()?.attr().mtime.get())
    }
}

/// A directory: of the host, or a mount.
struct Dir(PathBuf);

impl Guest for Dir {
    fn store(&self, path: &str, round: u64) -> Option<()> {
        File::options().write(true).open(self.0.join(path)).ok()?.write_all_at(&round.to_le_bytes(), 0).ok()
    }

    fn rename(&self, from: &str, to: &str) -> Option<()> {
        fs::rename(self.0.join(from), self.0.join(to)).ok()
    }

    fn set_mtime(&self, path: &str, round: u64) -> Option<()> {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(round);
        File::options().write(true).open(self.0.join(path)).ok()?.set_modified(at).ok()
    }

    fn load(&self, path: &str) -> Option<u64> {
        let mut bytes = [0; 8];
        File::open(self.0.join(path)).ok()?.read_exact_at(&mut bytes, 0).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn exists(&self, path: &str) -> Option<bool> {
        fs::exists(self.0.join(path)).ok()
    }

    fn mtime(&self, path: &str) -> Option<u64> {
        u64::try_from(fs::metadata(self.0.join(path)).ok()?.mtime()).ok()
    }
}

/// The files of one writer. Each has the number of the last round: in its data, in its time, or as its name.
struct Files {
    directory: String,
    /// The last round that is complete.
    complete: AtomicU64,
}

impl Files {
    fn make(host: &Path, directory: &str) -> Self {
        let at = host.join(directory);
        fs::create_dir_all(at.join("names")).unwrap();
        fs::write(at.join("data"), 0_u64.to_le_bytes()).unwrap();
        fs::write(at.join("names/0"), "").unwrap();
        let times = File::create(at.join("times")).unwrap();
        times.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        Self { directory: directory.into(), complete: AtomicU64::new(0) }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Makes the next round. `name` is what the last one has left. Returns nothing if the share is gone.
    fn change(&self, guest: &impl Guest, name: u64) -> Option<u64> {
        let round = self.complete.load(Ordering::SeqCst).max(name) + 1;
        guest.store(&self.path("data"), round)?;
        guest.rename(&self.path(&format!("names/{name}")), &self.path(&format!("names/{round}")))?;
        guest.set_mtime(&self.path("times"), round)?;
        self.complete.store(round, Ordering::SeqCst);
        Some(round)
    }

    /// Returns what `guest` has seen of before the round `least`, which was complete before it looked.
    fn stale(&self, guest: &impl Guest, least: u64) -> Option<String> {
        let data = guest.load(&self.path("data")).expect("the file is there");
        let time = guest.mtime(&self.path("times")).expect("the file is there");
        // The old name never comes back.
        let old = least.checked_sub(1).map(|round| self.path(&format!("names/{round}")));
        let has_old = old.is_some_and(|old| guest.exists(&old).expect("the share is there"));
        (data < least || time < least || has_old)
            .then(|| format!("{}: data {data}, time {time}, old name {has_old}, after round {least}", self.directory))
    }
}

/// What the threads share.
struct Stress {
    files: [Files; 3],
    end: Instant,
    looks: AtomicU64,
    looks_of_mounts: AtomicU64,
    delays: Mutex<Vec<Duration>>,
    kills: AtomicU64,
}

impl Stress {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    fn write(&self, files: &Files, guest: &impl Guest) {
        let mut name = 0;
        while !self.is_over() {
            name = files.change(guest, name).expect("the share is there");
            // Readers look more than once at most rounds.
            (0..name % 64).for_each(|_| thread::yield_now());
        }
    }

    /// Writes as a guest whose daemon is killed in the middle, again and again.
    fn write_and_die(&self, files: &Files, host: &Path, group: &Path) {
        let names = host.join(files.path("names"));
        while !self.is_over() {
            let (share, guest) = library(host, group);
            let daemon = share.device().transport().daemon_id().unwrap();
            let daemon = Pid::from_raw(daemon.cast_signed()).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    // What the death of the last daemon has left half-done.
                    let left = fs::read_dir(&names).unwrap().next().unwrap().unwrap().file_name();
                    let mut name = left.to_str().unwrap().parse().unwrap();
                    while let Some(next) = files.change(&guest, name) {
                        name = next;
                    }
                });
                let before = files.complete.load(Ordering::SeqCst);
                let rounds = 20 + self.kills.load(Ordering::Relaxed) % 50;
                while files.complete.load(Ordering::SeqCst) < before + rounds && !self.is_over() {
                    thread::yield_now();
                }
                kill_process_group(daemon, Signal::KILL).unwrap();
            });
            self.kills.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn look(&self, guest: &impl Guest) {
        while !self.is_over() {
            for files in &self.files {
                let least = files.complete.load(Ordering::SeqCst);
                if let Some(stale) = files.stale(guest, least) {
                    panic!("a guest of the library has seen {stale}");
                }
                self.looks.fetch_add(3, Ordering::Relaxed);
            }
        }
    }

    fn look_through_mount(&self, mount: &Dir) {
        while !self.is_over() {
            for files in &self.files {
                let least = files.complete.load(Ordering::SeqCst);
                let begun = Instant::now();
                let mut is_late = false;
                while let Some(stale) = files.stale(mount, least) {
                    assert!(begun.elapsed() < WITHIN, "a mount still sees {stale}");
                    is_late = true;
                }
                if is_late {
                    self.delays.lock().unwrap().push(begun.elapsed());
                }
                self.looks_of_mounts.fetch_add(3, Ordering::Relaxed);
            }
        }
    }
}

/// Returns a guest of the library with a daemon of its own in the group.
fn library(host: &Path, group: &Path) -> (Share, Fs<Process>) {
    let share = member(host, group, &["--front-end=alioth".into()]).connect().unwrap();
    let options = CacheOptions { mode: CacheMode::Shared, ..CacheOptions::default() };
    let volume = share.volume(SessionConfig::default(), options, DaxOptions::default()).unwrap();
    (share, Fs::new(Arc::new(volume)))
}

#[test]
fn nobody_in_a_group_uses_what_was_changed_before() {
    needs_mounts!();
    let (host, group) = (common::tree(), tempfile::tempdir().unwrap());
    let (host, group) = (host.path(), group.path());
    let seconds = std::env::var("TRANSOM_STRESS_S").ok().map(|text| text.parse().expect("a number of seconds"));
    let duration = seconds.map_or(DURATION, Duration::from_secs);
    let files = ["library", "mount", "killed"].map(|name| Files::make(host, name));
    let mut mounts = [(); 2].map(|()| {
        let at = tempfile::tempdir().unwrap();
        (Mount::start(member(host, group, &coherent().daemon_args()), at.path(), coherent()).unwrap(), at)
    });
    let [(_a, writer), (_b, first), (_c, second)] = [(); 3].map(|()| library(host, group));
    let [writing, reading] = [0, 1].map(|number: usize| Dir(mounts[number].1.path().to_owned()));
    let stress = Stress {
        files,
        end: Instant::now() + duration,
        looks: AtomicU64::new(0),
        looks_of_mounts: AtomicU64::new(0),
        delays: Mutex::default(),
        kills: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        scope.spawn(|| stress.write(&stress.files[0], &writer));
        scope.spawn(|| stress.write(&stress.files[1], &writing));
        scope.spawn(|| stress.write_and_die(&stress.files[2], host, group));
        scope.spawn(|| stress.look(&first));
        scope.spawn(|| stress.look(&second));
        scope.spawn(|| stress.look_through_mount(&reading));
    });
    let Stress { files, looks, looks_of_mounts, delays, kills, .. } = stress;
    let rounds = files.map(|files| files.complete.into_inner());
    let (looks, of_mounts, kills) = (looks.into_inner(), looks_of_mounts.into_inner(), kills.into_inner());
    let mut delays = delays.into_inner().unwrap();
    delays.sort_unstable();
    println!("{rounds:?} changes, {kills} daemons killed; {looks} looks by guests of the library, 0 stale");
    if let (Some(longest), Some(p50), p99) = (delays.last(), delays.get(delays.len() / 2), delays.len() * 99 / 100) {
        let (late, p99) = (delays.len(), delays[p99]);
        println!(
            "{of_mounts} looks by a mount, {late} times late by: p50 {p50:.1?}, p99 {p99:.1?}, longest {longest:.1?}"
        );
    }
    assert!(looks > 0 && of_mounts > 0 && kills > 0 && rounds.iter().all(|&rounds| rounds > 0));
    mounts.iter_mut().for_each(|(mount, _)| unmount(mount));
}
