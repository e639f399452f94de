//! Files that the kernel reads, writes and maps itself: the daemon's own counters tell that it was not asked.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::{
        fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process_group},
    system::uname,
};
use tempfile::TempDir;
use transom_mount::{Mount, MountEnd, Options, PassthroughCounts, PassthroughObstacle};
use transom_user::share::Share;
use vm_memory::{FileOffset, MmapRegion};

use crate::{common, needs_mounts, unmount};

/// As many files as are kept registered, and more; more than the window has ranges, by far.
const MANY: usize = 300;
/// Far above what unmapping takes.
const UNMAPPED_MAX: Duration = Duration::from_secs(60);

/// A mount that passes files through, of a directory with a file.
pub(crate) struct Passing {
    pub(crate) mount: Mount,
    host: TempDir,
    at: TempDir,
    metrics: TempDir,
}

impl Passing {
    /// With arguments of the daemon beside the usual ones, which they overrule.
    pub(crate) fn start(host: TempDir, args: &[&str]) -> Self {
        Self::with(host, Options { passthrough: true, ..Options::default() }, args)
    }

    /// With other options than those for passthrough.
    pub(crate) fn with(host: TempDir, options: Options, args: &[&str]) -> Self {
        let (at, metrics) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&host, &at] {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut program = common::transomd();
        program.args = options.daemon_args();
        program.args.push(format!("--metrics-socket={}", socket(&metrics).display()).into());
        program.args.extend(args.iter().map(Into::into));
        let share = Share::builder().shared_dir(host.path()).daemon(program);
        let mount = Mount::start(share, at.path(), options).unwrap();
        Self { mount, host, at, metrics }
    }

    pub(crate) fn on_tmpfs() -> Self {
        Self::start(tempfile::tempdir_in("/dev/shm").unwrap(), &[])
    }

    pub(crate) fn host(&self, name: &str) -> PathBuf {
        self.host.path().join(name)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    /// Requests of that name that the daemon has had.
    pub(crate) fn requests(&self, operation: &str) -> u64 {
        let report = transom_vm::metrics::read(&socket(&self.metrics)).unwrap();
        report.operations.iter().find(|one| one.operation == operation).map_or(0, |one| one.count)
    }

    /// Ranges of the window that are mapped.
    fn ranges(&self) -> u64 {
        transom_vm::metrics::read(&socket(&self.metrics)).unwrap().window.unwrap().ranges
    }

    fn counts(&self) -> PassthroughCounts {
        self.mount.passthrough().unwrap()
    }

    /// Nothing was read or written by the daemon.
    fn check(&self) {
        assert_eq!((self.requests("read"), self.requests("write")), (0, 0));
        let counts = self.counts();
        assert!(counts.passed > 0 && counts.ordinary == 0, "{counts:?}");
    }

    pub(crate) fn end(mut self) {
        unmount(&mut self.mount);
    }
}

fn socket(dir: &TempDir) -> PathBuf {
    dir.path().join("metrics")
}

/// Skips the test where the kernel has no passthrough.
macro_rules! needs_passthrough {
    () => {
        needs_mounts!();
        if !has_passthrough() {
            println!("SKIPPED: the kernel has no FUSE passthrough, or none that this process may use");
            return;
        }
    };
}
pub(crate) use needs_passthrough;

/// Whether the kernel is new enough, and the process may register files; where it lacks it all the same, tests fail.
pub(crate) fn has_passthrough() -> bool {
    let name = uname();
    let mut numbers = name.release().to_str().unwrap().split('.').map(|word| word.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let sets = rustix::thread::capabilities(None).unwrap();
    let is_first = fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.contains("4294967295"));
    version >= (6, 9) && is_first && sets.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN)
}

pub(crate) fn read_write(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn read_at(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, at).unwrap();
    bytes.truncate(read);
    bytes
}

/// A shared mapping of a file's first bytes.
pub(crate) struct Mapped(MmapRegion<()>);

impl Mapped {
    pub(crate) fn new(file: &File, len: usize) -> Self {
        Self(MmapRegion::from_file(FileOffset::new(file.try_clone().unwrap(), 0), len).unwrap())
    }

    pub(crate) fn load(&self, at: usize, len: usize) -> Vec<u8> {
        use vm_memory::VolatileMemory as _;
        let mut bytes = vec![0; len];
        self.0.get_slice(at, len).unwrap().copy_to(&mut bytes);
        bytes
    }

    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        use vm_memory::VolatileMemory as _;
        self.0.get_slice(at, bytes.len()).unwrap().copy_from(bytes);
    }
}

#[test]
fn reads_writes_and_mappings_are_the_hosts_own_and_make_no_requests() {
    needs_passthrough!();
    for dir in [common::on_disk(), tempfile::tempdir_in("/dev/shm").unwrap()] {
        reads_writes_and_mappings(Passing::start(dir, &[]));
    }
    for cache in ["--cache=never", "--cache=always"] {
        reads_writes_and_mappings(Passing::start(common::on_disk(), &[cache]));
    }
}

fn reads_writes_and_mappings(share: Passing) {
    let data: Vec<u8> = (0..(3 << 20) + 5).map(|at: u32| (at / 7) as u8).collect();
    fs::write(share.host("file"), &data).unwrap();
    let (file, host) = (read_write(&share.at("file")), read_write(&share.host("file")));
    // 1. By system calls, either way.
    assert!(read_at(&file, 0, 4 << 20) == data);
    file.write_all_at(b"by the mount", 100).unwrap();
    assert_eq!(read_at(&host, 100, 12), b"by the mount");
    host.write_all_at(b"by the host", 4096).unwrap();
    assert_eq!(read_at(&file, 4096, 11), b"by the host");
    // 2. By a shared mapping, either way and beside system calls.
    let mapped = Mapped::new(&file, 2 << 20);
    assert_eq!(mapped.load(4096, 11), b"by the host");
    mapped.store(8192, b"stored");
    assert_eq!((read_at(&host, 8192, 6), read_at(&file, 8192, 6)), (b"stored".to_vec(), b"stored".to_vec()));
    host.write_all_at(b"written", 12_288).unwrap();
    assert_eq!(mapped.load(12_288, 7), b"written");
    // 3. At the end of the file, of which both write.
    let mut end = File::options().append(true).open(share.at("file")).unwrap();
    let mut host_end = File::options().append(true).open(share.host("file")).unwrap();
    for _ in 0..3 {
        end.write_all(b"mount").unwrap();
        host_end.write_all(b"host").unwrap();
    }
    assert_eq!(read_at(&file, data.len() as u64, 100), b"mounthostmounthostmounthost");
    // 4. A new file.
    fs::write(share.at("new"), &data).unwrap();
    assert!(fs::read(share.host("new")).unwrap() == data);
    assert_eq!(fs::metadata(share.at("new")).unwrap().len(), data.len() as u64);
    share.check();
    drop((file, end, mapped));
    share.end();
}

#[test]
fn a_file_that_either_side_makes_shorter_ends_there_at_once() {
    needs_passthrough!();
    let share = Passing::on_tmpfs();
    fs::write(share.host("file"), vec![7; 100_000]).unwrap();
    let file = read_write(&share.at("file"));
    File::options().write(true).open(share.host("file")).unwrap().set_len(50_000).unwrap();
    assert_eq!(read_at(&file, 0, 200_000).len(), 50_000);
    file.set_len(10_000).unwrap();
    assert_eq!(fs::metadata(share.host("file")).unwrap().len(), 10_000);
    assert_eq!((read_at(&file, 0, 200_000).len(), file.metadata().unwrap().len()), (10_000, 10_000));
    // A write past the end makes it longer for both.
    file.write_all_at(b"end", 60_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 60_003);
    assert_eq!(fs::metadata(share.host("file")).unwrap().len(), 60_003);
    share.check();
    drop(file);
    share.end();
}

#[test]
fn opens_of_one_file_for_different_things_go_together() {
    needs_passthrough!();
    let share = Passing::on_tmpfs();
    fs::write(share.host("file"), "0123456789").unwrap();
    // 1. For reading, which says nothing of writing: the daemon is asked twice.
    let reading = File::open(share.at("file")).unwrap();
    let writing = File::options().write(true).open(share.at("file")).unwrap();
    let both = read_write(&share.at("file"));
    assert_eq!(share.counts(), PassthroughCounts { passed: 3, ordinary: 0, asked: 2 });
    writing.write_all_at(b"abc", 0).unwrap();
    both.write_all_at(b"xyz", 3).unwrap();
    assert_eq!(read_at(&reading, 0, 100), b"abcxyz6789");
    assert!(reading.write_at(b"no", 0).is_err());
    drop((writing, both, reading));
    // 2. The other way round, and truncated by an open.
    let truncating = File::options().write(true).truncate(true).open(share.at("file")).unwrap();
    truncating.write_all_at(b"new", 0).unwrap();
    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(share.at("file")).unwrap();
    assert_eq!(io::read_to_string(File::open(share.at("file")).unwrap()).unwrap(), "new");
    drop((truncating, direct));
    share.check();
    share.end();
}

#[test]
fn threads_that_open_one_file_at_once_all_get_it() {
    needs_passthrough!();
    let share = Passing::on_tmpfs();
    fs::write(share.host("file"), vec![0; 8 * 64]).unwrap();
    thread::scope(|scope| {
        for index in 0..8_u8 {
            let path = share.at("file");
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let is_writing = (round + u64::from(index)).is_multiple_of(3);
                    let file = File::options().read(true).write(is_writing).open(&path).unwrap();
                    if is_writing {
                        file.write_all_at(&round.to_le_bytes(), u64::from(index) * 64).unwrap();
                    }
                    assert_eq!(read_at(&file, 0, 1000).len(), 8 * 64);
                }
            });
        }
    });
    share.check();
    share.end();
}

#[test]
fn a_file_without_a_name_is_used_until_it_is_closed() {
    needs_passthrough!();
    let share = Passing::on_tmpfs();
    for (name, remove) in [("by-mount", share.at("by-mount")), ("by-host", share.host("by-host"))] {
        fs::write(share.at(name), "content").unwrap();
        let file = read_write(&share.at(name));
        let mapped = Mapped::new(&file, 4096);
        fs::remove_file(remove).unwrap();
        file.write_all_at(b"C", 0).unwrap();
        assert_eq!(read_at(&file, 0, 100), b"Content");
        drop(file);
        assert_eq!(mapped.load(0, 7), b"Content");
    }
    share.check();
    share.end();
}

#[test]
fn more_files_than_the_window_has_ranges_are_open_at_once() {
    needs_passthrough!();
    let share = Passing::on_tmpfs();
    let name = |index: usize| format!("file-{index}");
    (0..MANY).for_each(|index| fs::write(share.host(&name(index)), name(index)).unwrap());
    thread::scope(|scope| {
        for first in 0..4 {
            let share = &share;
            scope.spawn(move || {
                let indices = (first..MANY).step_by(4);
                let files: Vec<_> = indices.clone().map(|index| File::open(share.at(&name(index))).unwrap()).collect();
                for (file, index) in files.iter().zip(indices) {
                    assert_eq!(read_at(file, 0, 100), name(index).as_bytes());
                }
            });
        }
    });
    assert_eq!(share.counts().asked, MANY as u64);
    // What was open last is not asked for again.
    for index in MANY - 100..MANY {
        assert_eq!(fs::read_to_string(share.at(&name(index))).unwrap(), name(index));
    }
    assert!(share.counts().asked < (MANY + 100) as u64);
    share.check();
    // Nothing stays mapped; nobody is told when the last of it has gone.
    let deadline = Instant::now() + UNMAPPED_MAX;
    while share.ranges() > 0 && Instant::now() < deadline {
        thread::yield_now();
    }
    assert_eq!(share.ranges(), 0);
    share.end();
}

#[test]
fn what_is_open_outlives_the_daemon_and_the_mount_ends() {
    needs_passthrough!();
    let mut share = Passing::on_tmpfs();
    fs::write(share.host("file"), "content").unwrap();
    let file = read_write(&share.at("file"));
    let mapped = Mapped::new(&file, 4096);
    let pid = share.mount.daemon_id().unwrap();
    kill_process_group(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    assert_eq!(share.mount.wait(), MountEnd::Gone);
    // The host's file is there for whoever has it; whatever takes the daemon fails.
    assert_eq!(mapped.load(0, 7), b"content");
    match file.read_at(&mut [0; 7], 0) {
        Ok(read) => assert_eq!(read, 7),
        Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::EIO)), "{error}"),
    }
    assert!(File::open(share.at("file")).is_err());
    drop((file, mapped));
    unmount(&mut share.mount);
}

#[test]
fn a_write_by_an_ordinary_user_takes_the_set_id_bits() {
    needs_passthrough!();
    let share = Passing::start(common::on_disk(), &[]);
    let chmod = |mode| fs::set_permissions(share.host("file"), fs::Permissions::from_mode(mode)).unwrap();
    fs::write(share.host("file"), "content").unwrap();
    // The mount gets to know the file before it is dangerous, and may go by that.
    chmod(0o666);
    assert_eq!(fs::metadata(share.at("file")).unwrap().mode() & 0o7777, 0o666);
    chmod(0o6777);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg("echo x >> \"$0\"").arg(share.at("file")).uid(65_534).gid(65_534);
    assert!(shell.status().unwrap().success());
    assert_eq!(fs::metadata(share.host("file")).unwrap().mode() & 0o7777, 0o777);
    share.check();
    share.end();
}

#[test]
fn a_file_that_is_open_for_reading_can_be_executed_by_the_host() {
    needs_passthrough!();
    let share = Passing::start(common::on_disk(), &[]);
    fs::copy("/bin/true", share.host("program")).unwrap();
    let open = File::open(share.at("program")).unwrap();
    assert!(Command::new(share.host("program")).status().unwrap().success());
    assert!(Command::new(share.at("program")).status().unwrap().success());
    drop(open);
    share.check();
    share.end();
}

#[test]
fn a_share_that_is_read_only_is_read_through_and_not_written() {
    needs_passthrough!();
    let share = Passing::start(common::on_disk(), &["--readonly"]);
    fs::write(share.host("file"), "content").unwrap();
    assert_eq!(fs::read_to_string(share.at("file")).unwrap(), "content");
    let error = File::options().write(true).open(share.at("file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    share.check();
    share.end();
}

#[test]
fn a_daemon_with_other_files_than_a_disks_is_asked_by_requests() {
    needs_passthrough!();
    // 1. For QEMU, it hands out views of files, which lie on a file system of its own.
    let share = Passing::start(common::on_disk(), &["--front-end=qemu"]);
    fs::write(share.host("file"), "content").unwrap();
    assert_eq!(fs::read_to_string(share.at("file")).unwrap(), "content");
    assert!(share.requests("read") > 0);
    let counts = share.counts();
    assert!(counts.ordinary > 0 && counts.passed == 0, "{counts:?}");
    share.end();
    // 2. For others, the files themselves, writable or not.
    let share = Passing::start(common::on_disk(), &["--front-end=alioth"]);
    fs::write(share.host("file"), "content").unwrap();
    assert_eq!(fs::read_to_string(share.at("file")).unwrap(), "content");
    share.check();
    share.end();
}

#[test]
fn a_daemon_without_a_window_serves_all_by_requests_and_it_is_said_why() {
    needs_passthrough!();
    let mut programs = common::daemons();
    for program in &mut programs {
        program.args.clear();
        let (dir, at) = (common::tree(), tempfile::tempdir().unwrap());
        let share = Share::builder().shared_dir(dir.path()).daemon(program.clone());
        let options = Options { passthrough: true, ..Options::default() };
        let mut mount = Mount::start(share, at.path(), options).unwrap();
        assert_eq!(mount.passthrough(), Err(PassthroughObstacle::Window));
        assert_eq!(fs::read(at.path().join("hello")).unwrap(), b"hello, world\n");
        fs::write(at.path().join("hello"), "changed").unwrap();
        assert_eq!(fs::read(dir.path().join("hello")).unwrap(), b"changed");
        unmount(&mut mount);
    }
}
