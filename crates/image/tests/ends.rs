//! How unpacking ends early: by a stop, by a full disk, by a change of the image, by a crash. Nothing is left of it, or
//! the next run removes it.

mod common;

use std::{
    cell::Cell,
    env,
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, SystemTime},
};

use common::{Archive, Quiet, docker_archive, gzip, layout};
use rustix::fs::{FlockOperation, flock};
use tar::EntryType;
use tempfile::TempDir;
use transom_image::{Error, Result, Store, Unpacked, Watch};

/// Calls something at each step.
#[derive(Default)]
struct At<'a> {
    begins: Option<&'a dyn Fn()>,
    advances: Option<&'a dyn Fn(u64)>,
    waits: Cell<bool>,
    /// Times that it was asked whether to stop, before and after the beginning.
    asked: Cell<[usize; 2]>,
    has_begun: Cell<bool>,
    stops_after: Option<usize>,
}

impl Watch for At<'_> {
    fn begins(&self, _len_bytes: u64) {
        self.has_begun.set(true);
        self.begins.iter().for_each(|call| call());
    }

    fn advances(&self, done_bytes: u64) {
        self.advances.iter().for_each(|call| call(done_bytes));
    }

    fn waits_for(&self, _path: &Path) {
        self.waits.set(true);
    }

    fn is_cancelled(&self) -> bool {
        let mut asked = self.asked.get();
        asked[usize::from(self.has_begun.get())] += 1;
        self.asked.set(asked);
        self.waits.get() || self.stops_after.is_some_and(|count| asked[0] + asked[1] > count)
    }
}

/// A folder with images and a store.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> &Self {
        fs::write(self.path(name), bytes).unwrap();
        self
    }

    fn open(&self, name: &str, watch: &dyn Watch) -> Result<Unpacked> {
        Store::at(self.path("store")).open(&self.path(name), None, watch)
    }

    /// What is in the store.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("store")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Returns bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn tar_with(files: usize, len: usize) -> Vec<u8> {
    let mut archive = Archive::new();
    for number in 0..files {
        archive.file(&format!("dir/{number}"), 0o644, &noise(len));
    }
    archive.finish()
}

#[test]
fn a_stop_at_any_moment_leaves_nothing() {
    let folder = Folder::new();
    let layers = [gzip(&tar_with(5, 300_000)), gzip(&tar_with(3, 300_000))];
    layout(&folder.path("layout"), &layers, "latest");
    let docker = docker_archive(&layers, "name:latest");
    folder.write("docker.tar", &docker).write("docker.tar.gz", &gzip(&docker)).write("root.tar", &tar_with(5, 300_000));
    folder.write("root.tar.gz", &gzip(&tar_with(5, 300_000)));
    for image in ["layout", "docker.tar", "docker.tar.gz", "root.tar", "root.tar.gz"] {
        let whole = At::default();
        folder.open(image, &whole).unwrap();
        fs::remove_dir_all(folder.path("store")).unwrap();
        let [before, after] = whole.asked.get();
        // Not only the unpacking can be stopped: recognising an image reads it, and so does copying it.
        if image != "layout" {
            assert!(before > 3, "{image}: asked {before} times");
        }
        for count in (0..before + after).step_by(((before + after) / 40).max(1)) {
            let watch = At { stops_after: Some(count), ..At::default() };
            let stopped = folder.open(image, &watch);
            if watch.asked.get().iter().sum::<usize>() <= count {
                // How often it is asked at the end depends on the disk.
                drop(stopped.unwrap());
                fs::remove_dir_all(folder.path("store")).unwrap();
                break;
            }
            assert!(matches!(stopped, Err(Error::Cancelled)), "{image} at {count}: {stopped:?}");
            assert!(folder.left().is_empty(), "{image} at {count}: {:?}", folder.left());
        }
    }
}

#[test]
fn who_waits_for_another_process_is_told_so_and_can_stop() {
    let folder = Folder::new();
    folder.write("root.tar", &tar_with(1, 10));
    let id = folder.open("root.tar", &Quiet).unwrap().root.parent().unwrap().to_owned();
    let lock = File::open(id.with_extension("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    // Another process removes it, or unpacks it.
    for _ in 0..2 {
        let waiting = At::default();
        assert!(matches!(folder.open("root.tar", &waiting), Err(Error::Cancelled)));
        assert!(waiting.waits.get());
        let _ = fs::remove_dir_all(&id);
    }
    drop(lock);
    folder.open("root.tar", &Quiet).unwrap();
}

/// Tells when somebody waits.
struct Waits(mpsc::Sender<()>);

impl Watch for Waits {
    fn begins(&self, _len_bytes: u64) {}

    fn advances(&self, _done_bytes: u64) {}

    fn waits_for(&self, _path: &Path) {
        let _ = self.0.send(());
    }

    fn is_cancelled(&self) -> bool {
        false
    }
}

#[test]
fn who_waits_for_an_image_goes_on_once_it_is_there_though_its_first_guest_still_runs() {
    let folder = Folder::new();
    folder.write("root.tar", &tar_with(1, 10));
    let (image, store) = (folder.path("root.tar"), folder.path("store"));
    let (sender, waits) = mpsc::channel();
    let (begun, second) = (Cell::new(Some(sender)), Cell::new(None));
    // While the first run unpacks it, the second one begins and waits.
    let begin = || {
        let Some(sender) = begun.take() else { return };
        let (image, store) = (image.clone(), store.clone());
        let open = move || drop(Store::at(store).open(&image, None, &Waits(sender)).unwrap());
        second.set(Some(thread::spawn(open)));
        waits.recv().unwrap();
    };
    let first = Store::at(&store).open(&image, None, &At { begins: Some(&begin), ..At::default() }).unwrap();
    second.take().unwrap().join().unwrap();
    drop(first);
}

#[test]
fn a_tar_that_changes_while_it_is_read_is_not_kept() {
    let folder = Folder::new();
    for name in ["root.tar", "root.tar.gz"] {
        let packed = |content: &[u8]| {
            let mut archive = Archive::new();
            archive.file("name", 0o644, content);
            if name.ends_with("gz") { gzip(&archive.finish()) } else { archive.finish() }
        };
        folder.write(name, &packed(b"first"));
        let change = || fs::write(folder.path(name), packed(b"other")).unwrap();
        let error = folder.open(name, &At { begins: Some(&change), ..At::default() }).unwrap_err().to_string();
        assert!(error.contains("has changed while it was read"), "{error}");
        assert!(folder.left().is_empty(), "{:?}", folder.left());
        for content in [&b"first"[..], b"other"] {
            folder.write(name, &packed(content));
            assert_eq!(fs::read(folder.open(name, &Quiet).unwrap().root.join("name")).unwrap(), content);
        }
        fs::remove_dir_all(folder.path("store")).unwrap();
    }
}

#[test]
fn a_version_that_is_read_just_after_it_was_written_is_not_taken_for_a_later_one() {
    let folder = Folder::new();
    folder.write("root.tar", &tar_with(1, 10));
    folder.open("root.tar", &Quiet).unwrap();
    // Its times may not change if it is written again within the same tick of the file system's clock.
    let age = fs::metadata(folder.path("root.tar")).unwrap().modified().unwrap().elapsed().unwrap();
    let is_new = age.as_secs() < 2;
    assert!(!is_new || !folder.left().iter().any(|name| name.ends_with(".known")), "{:?}", folder.left());
}

/// The variable with the folder of a process that this test starts, and kills.
const KILLED: &str = "TRANSOM_TEST_KILLED";

#[test]
fn what_a_killed_run_has_left_is_removed_and_what_a_live_one_makes_stays() {
    if let Some(folder) = env::var_os(KILLED) {
        let kill = |done_bytes| {
            if done_bytes > 1_000_000 {
                let me = rustix::process::getpid();
                rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
            }
        };
        let _ = Store::at(Path::new(&folder).join("store")).open(
            &Path::new(&folder).join("root.tar"),
            None,
            &At { advances: Some(&kill), ..At::default() },
        );
        unreachable!();
    }
    let folder = Folder::new();
    folder.write("root.tar", &tar_with(20, 100_000)).write("other.tar", &tar_with(1, 10));
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", "what_a_killed_run_has_left_is_removed_and_what_a_live_one_makes_stays"]);
    let status = again.env(KILLED, folder.0.path()).output().unwrap().status;
    assert_eq!(status.signal(), Some(9), "{status:?}");
    let partial = |folder: &Folder| folder.left().into_iter().find(|name| name.ends_with(".partial"));
    let left = partial(&folder).expect("half an image");

    // While somebody holds the lock, it is another run's.
    let lock = File::open(folder.path("store").join(&left).with_extension("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    drop(folder.open("other.tar", &Quiet).unwrap());
    assert_eq!(partial(&folder).as_ref(), Some(&left));
    drop(lock);
    drop(folder.open("other.tar", &Quiet).unwrap());
    assert_eq!(partial(&folder), None);
    assert!(!folder.left().contains(&left.replace("partial", "lock")), "{:?}", folder.left());

    // What is left of the same image is not built upon.
    fs::create_dir_all(folder.path("store").join(&left).join("root/extra")).unwrap();
    let image = folder.open("root.tar", &Quiet).unwrap();
    assert!(!image.root.join("extra").exists());
    assert_eq!(fs::read_dir(image.root.join("dir")).unwrap().count(), 20);
}

#[test]
fn an_image_that_was_not_used_for_long_is_removed_unless_somebody_uses_it() {
    let folder = Folder::new();
    folder.write("old.tar", &tar_with(1, 10)).write("new.tar", &tar_with(2, 10)).write("newer.tar", &tar_with(3, 10));
    let old = folder.open("old.tar", &Quiet).unwrap();
    let dir = old.root.parent().unwrap().to_owned();
    let lock = File::options().append(true).open(dir.with_extension("lock")).unwrap();
    let age = |days: u64| lock.set_modified(SystemTime::now() - Duration::from_secs(days * 24 * 3600)).unwrap();
    age(31);
    folder.open("new.tar", &Quiet).unwrap();
    assert!(dir.is_dir(), "it is in use");
    drop(old);
    age(29);
    fs::remove_dir_all(folder.open("new.tar", &Quiet).unwrap().root.parent().unwrap()).unwrap();
    folder.open("new.tar", &Quiet).unwrap();
    assert!(dir.is_dir(), "it was used not long ago");
    age(31);
    folder.open("newer.tar", &Quiet).unwrap();
    assert!(!dir.exists() && !dir.with_extension("lock").exists());
    folder.open("old.tar", &Quiet).unwrap();
}

/// The variable with the mount point of a small file system, in a process that has a mount namespace for it.
const SMALL: &str = "TRANSOM_TEST_SMALL";
const SMALL_BYTES: u64 = 80 << 20;
const SMALL_FILES: u64 = 3000;

#[test]
fn a_small_disk_is_noticed_before_it_is_full() {
    if let Some(dir) = env::var_os(SMALL) {
        return fill(Path::new(&dir));
    }
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: a_small_disk_is_noticed_before_it_is_full: only root mounts file systems");
    }
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size={SMALL_BYTES},nr_inodes={SMALL_FILES} tmpfs \"$1\" || exit 77
         exec \"$0\" --exact a_small_disk_is_noticed_before_it_is_full --nocapture"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(env::current_exe().unwrap()).arg(dir.path());
    let output = match command.env(SMALL, dir.path()).output() {
        Ok(output) => output,
        Err(error) => return eprintln!("SKIPPED: a_small_disk_is_noticed_before_it_is_full: no unshare: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || said.contains("unshare failed") {
        return eprintln!("SKIPPED: a_small_disk_is_noticed_before_it_is_full: no tmpfs can be mounted: {said}");
    }
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
}

/// Unpacks what does not fit into the file system at `dir`.
fn fill(dir: &Path) {
    let folder = Folder::new();
    let store = dir.join("store");
    let small = Store::at(&store);
    let is_refused = |name: &str, text: &str| {
        let error = small.open(&folder.path(name), None, &Quiet).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains(store.to_str().unwrap()), "{name}: {error}");
        assert!(error.contains("TRANSOM_CACHE"), "{error}");
        assert_eq!(fs::read_dir(&store).unwrap().count(), 0, "{name}");
        let found = rustix::fs::statvfs(dir).unwrap();
        assert!(found.f_files - found.f_ffree < 5, "{name} has left inodes");
        assert!((found.f_blocks - found.f_bfree) * found.f_frsize < 1 << 20, "{name} has left bytes");
    };
    let zeros = vec![0; 20 << 20];
    let bomb = {
        let mut archive = Archive::new();
        archive.file("zeros", 0o644, &zeros);
        archive.finish()
    };
    // Known from the length alone, of one file, and of many that are small.
    folder.write("plain.tar", &bomb);
    is_refused("plain.tar", "needs at least 21M more");
    folder.write("bomb.tar.gz", &gzip(&bomb));
    is_refused("bomb.tar.gz", "needs at least 21M more");
    folder.write("many.tar.gz", &gzip(&tar_with_zeros(400, 100_000)));
    is_refused("many.tar.gz", "more in the cache");
    // An archive of an image is decompressed before it is unpacked.
    folder.write("image.tar.gz", &gzip(&docker_archive(&[bomb], "name:latest")));
    is_refused("image.tar.gz", "more in the cache");

    let nothing = |kind: EntryType| {
        let mut archive = Archive::new();
        for number in 0..SMALL_FILES {
            match kind {
                EntryType::Directory => archive.directory(&number.to_string(), 0o755),
                EntryType::Regular => archive.file(&number.to_string(), 0o644, b""),
                kind => archive.link(kind, &number.to_string(), "target"),
            };
        }
        archive.finish()
    };
    for kind in [EntryType::Directory, EntryType::Regular, EntryType::Symlink] {
        folder.write("inodes.tar.gz", &gzip(&nothing(kind)));
        is_refused("inodes.tar.gz", "more files in the cache");
    }
    // What fits is unpacked.
    folder.write("root.tar", &tar_with(100, 10_000));
    small.open(&folder.path("root.tar"), None, &Quiet).unwrap();
}

fn tar_with_zeros(files: usize, len: usize) -> Vec<u8> {
    let mut archive = Archive::new();
    for number in 0..files {
        archive.file(&number.to_string(), 0o644, &vec![0; len]);
    }
    archive.finish()
}
