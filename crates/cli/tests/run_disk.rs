//! A program in a guest that tries to add more to its share than `--disk` allows, in each way that Linux has.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// Well above the time of a boot on a busy machine, so that only a run that hangs reaches it.
const LIMIT_S: &str = "400";
/// What the guest may add.
const DISK: u64 = 8 << 20;

/// Returns whether guests cannot run here, and prints the reason.
fn is_skipped(test: &str) -> bool {
    let daemon = std::env::var_os("TRANSOM_DAEMON")
        .map_or_else(|| Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd"), PathBuf::from);
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    let reason = match (has_qemu, daemon.is_file(), Path::new("/usr/bin/python3").is_file()) {
        (true, true, true) => return false,
        (false, ..) => "no qemu-system-x86_64 in PATH".to_owned(),
        (_, false, _) => format!("no daemon {daemon:?}; build transomd"),
        (.., false) => "no /usr/bin/python3".to_owned(),
    };
    eprintln!("SKIPPED: {test}: {reason}");
    true
}

/// A directory of the host outside of those that the guest has itself, and of homes.
fn folder() -> TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

fn run(state: &Path, arguments: &[&str], script: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(["run", "--timeout", LIMIT_S]).args(arguments).args(["--", "/usr/bin/python3", "-c", script]);
    command.env("XDG_STATE_HOME", state).stdin(Stdio::null()).output().unwrap()
}

/// Returns what a tree takes.
fn taken(path: &Path) -> u64 {
    let found = fs::symlink_metadata(path).unwrap();
    let below =
        if found.is_dir() { fs::read_dir(path).unwrap().map(|entry| taken(&entry.unwrap().path())).sum() } else { 0 };
    found.blocks() * 512 + below
}

/// Each way ends with ENOSPC, and leaves nothing; the last one leaves a full share. Replaced files count until the
/// guest's kernel has sent RELEASE and FORGET, which it does after `close` and `rename` have returned: hence `patient`.
const ATTACK: &str = r#"
import ctypes, errno, os, time
libc = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20
def full(what, step):
    try:
        for number in range(2000): step(number)
        print(what, 'UNLIMITED')
    except OSError as error:
        print(what, errno.errorcode[error.errno])
def opened(name): return os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), 'fallocate')
def written(fd, data, offset):
    os.pwrite(fd, data, offset); os.fsync(fd)

f = opened('a'); full('write', lambda n: written(f, b'x' * MIB, n * MIB)); os.ftruncate(f, 0)
f = opened('a'); os.ftruncate(f, 1 << 40)
full('holes', lambda n: written(f, b'x' * 65536, n << 24)); os.ftruncate(f, 0)
full('fallocate', lambda n: fallocate(f, 1, n * MIB, MIB)); os.ftruncate(f, 0)
full('zero range', lambda n: fallocate(f, 0x10, n * MIB, MIB)); os.ftruncate(f, 0)
written(f, b'x' * MIB, 0); g = opened('b')
full('copy', lambda n: (os.copy_file_range(f, g, MIB, 0, n * MIB), os.fsync(g))); os.ftruncate(g, 0)
def linked(n):
    h = opened('c'); written(h, b'x' * MIB, 0); os.link('c', f'c{n}'); os.unlink('c'); os.close(h)
full('links', linked); [os.unlink(name) for name in os.listdir('.') if name.startswith('c')]
held = []
def unlinked(n):
    h = opened('d'); os.unlink('d'); held.append(h); written(h, b'x' * MIB, 0)
full('unlinked', unlinked); [os.close(h) for h in held]
def patient(fd):
    deadline = time.monotonic() + 60
    while True:
        try: return written(fd, b'x' * MIB, 0)
        except OSError as error:
            if error.errno != errno.ENOSPC or time.monotonic() > deadline: raise
            time.sleep(0.01)
for n in range(40):
    h = opened('e'); patient(h); os.close(h); os.rename('e', 'f')
print('replaced')
s = os.statvfs('.'); print('statfs', s.f_blocks * s.f_frsize <= 8 * MIB, s.f_bavail * s.f_frsize <= 8 * MIB)
g = opened('rest'); full('again', lambda n: written(g, b'x' * 65536, n * 65536))
"#;

const EXPECTED: &str = "write ENOSPC\nholes ENOSPC\nfallocate ENOSPC\nzero range ENOSPC\ncopy ENOSPC\nlinks ENOSPC\n\
                        unlinked ENOSPC\nreplaced\nstatfs True True\nagain ENOSPC\n";

#[test]
fn a_guest_cannot_add_more_than_its_disk_in_any_way() {
    if is_skipped("a_guest_cannot_add_more") {
        return;
    }
    for writeback in [&[][..], &["--daemon-arg=--writeback"]] {
        let (folder, state) = (folder(), folder());
        fs::write(folder.path().join("old"), vec![1; 3 * DISK as usize]).unwrap();
        let before = taken(folder.path());
        let share = folder.path().to_str().unwrap();
        let arguments = [&["--root", "/", "--disk", "8M", "--share", share], writeback].concat();
        let output = run(state.path(), &arguments, ATTACK);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), EXPECTED, "{writeback:?}: {error}");
        let added = taken(folder.path()) - before;
        assert!((DISK / 2..=DISK).contains(&added), "{added} bytes of {DISK} were added");
    }
}

#[test]
fn an_overlay_counts_what_it_copies_and_files_are_counted() {
    if is_skipped("an_overlay_counts") {
        return;
    }
    let (folder, state) = (folder(), folder());
    for number in 0..6 {
        fs::write(folder.path().join(format!("old{number}")), vec![1; DISK as usize / 4]).unwrap();
    }
    let share = format!("{},overlay", folder.path().display());
    let script = r"
import errno, os
def full(what, step):
    done = 0
    try:
        for number in range(6): step(number); done += 1
    except OSError as error: print(what, done, errno.errorcode[error.errno])
    else: print(what, done)
full('copied', lambda n: os.close(os.open(f'old{n}', os.O_WRONLY)))
full('removed', lambda n: os.unlink(f'old{n}'))
";
    let output = run(state.path(), &["--root", "/", "--disk", "8M", "--share", &share], script);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "copied 3 ENOSPC\nremoved 6\n", "{error}");

    let plain = tempfile::tempdir_in("/var/tmp").unwrap();
    let script = r"
import errno, os
try:
    for number in range(100): os.mkdir(str(number))
except OSError as error: print(number, errno.errorcode[error.errno])
s = os.statvfs('.'); print(s.f_files, s.f_ffree)
";
    let share = plain.path().to_str().unwrap();
    let output = run(state.path(), &["--root", "/", "--disk", "8M,files=20", "--share", share], script);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "20 ENOSPC\n20 0\n", "{error}");
}

#[test]
fn a_limit_that_cannot_hold_is_refused() {
    let (folder, state) = (folder(), folder());
    let share = folder.path().to_str().unwrap();
    let refused = |arguments: &[&str], text: &str| {
        let output = run(state.path(), arguments, "");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {error}");
        assert!(error.contains(text), "{arguments:?}: {error}");
    };
    refused(&["--disk", "1M", "--share", &format!("{share},dax=2M")], "DAX window");
    refused(&["--disk", "1M", "--share", &format!("{share},ro")], "no share is writable");
    refused(&["--disk", "1M"], "no share is writable");
    refused(&["--disk", "0", "--share", share], "leaves no room");
    refused(&["--disk", "1M,inodes=5", "--share", share], "files=N");
}
