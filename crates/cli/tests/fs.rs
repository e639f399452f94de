//! `transom fs` on the command line, with the daemon that was built.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::Path,
    process::{Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// `transom fs` on a share of a few files.
struct Shared(TempDir);

impl Shared {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("hello"), "hello, world\n").unwrap();
        fs::create_dir_all(dir.path().join("sub/deep")).unwrap();
        fs::write(dir.path().join("sub/deep/.hidden"), "").unwrap();
        symlink("../hello", dir.path().join("sub/link")).unwrap();
        fs::set_permissions(dir.path().join("hello"), fs::Permissions::from_mode(0o640)).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(["fs", "--shared-dir"]).arg(self.path()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command that must succeed; returns its standard output.
    fn run(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{arguments:?}: {status}: {stderr}");
        stdout.into_owned()
    }

    /// Runs a command that must fail; returns its exit status and standard error.
    fn fail(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn listings_show_what_is_in_the_share() {
    let shared = Shared::new();
    assert_eq!(shared.run(&["ls"]), "hello\nsub\n");
    let long = shared.run(&["ls", "-l", "hello"]);
    let owner = fs::metadata(shared.path()).unwrap();
    assert!(long.starts_with(&format!("-rw-r----- 1 {} {} 13 ", owner.uid(), owner.gid())), "{long}");
    assert_eq!(
        shared.run(&["tree", "-a", "sub"]),
        "sub\n├── deep\n│   └── .hidden\n└── link -> ../hello\n\n1 directories, 2 files\n"
    );
    assert_eq!(shared.run(&["find", "--type", "f", "/"]), "/hello\n/sub/deep/.hidden\n");
    assert_eq!(shared.run(&["find", "--name", "?i*", "sub"]), "sub/link\n");
    assert_eq!(shared.run(&["cat", "hello", "sub/link"]), "hello, world\nhello, world\n");
    assert!(shared.run(&["stat", "sub/link"]).contains("symbolic link"));
    assert!(shared.run(&["stat", "--json", "hello"]).contains("\"size_bytes\":13"));
    assert_eq!(shared.run(&["du", "-s", "--apparent", "hello"]), "13\thello\n");
    assert!(shared.run(&["df"]).contains('%'));
}

#[test]
fn files_go_through_a_window_as_they_are() {
    let shared = Shared::new();
    let bytes: Vec<u8> = (0..5 << 20).map(|at: u32| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    fs::write(shared.path().join("large"), &bytes).unwrap();
    assert!(shared.command(&["--dax", "cat", "large", "hello"]).output().unwrap().stdout[..5 << 20] == bytes);
    let out = tempfile::tempdir().unwrap();
    fs::write(out.path().join("in"), &bytes[7..]).unwrap();
    let copy = |from: &str, to: &str| shared.run(&["--dax", "cp", from, to]);
    copy(out.path().join("in").to_str().unwrap(), ":sub/copy");
    copy(":sub/copy", out.path().join("out").to_str().unwrap());
    assert!(fs::read(shared.path().join("sub/copy")).unwrap() == bytes[7..]);
    assert!(fs::read(out.path().join("out")).unwrap() == bytes[7..]);
    let (status, message) = shared.fail(&["--dax", "--daemon-arg=--dax-window=nonsense", "ls"]);
    assert!(status == Some(1) && !message.is_empty(), "{message}");
}

#[test]
fn a_shared_cache_needs_a_coherence_group() {
    let (shared, place) = (Shared::new(), tempfile::tempdir().unwrap());
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let group = place.path().to_str().unwrap();
    assert_eq!(shared.run(&["--cache=shared", "--coherence-group", group, "cat", "sub/link"]), "hello, world\n");
    assert_eq!(shared.run(&["--dax", "--cache=shared", "--coherence-group", group, "cat", "hello"]), "hello, world\n");
    let (status, message) = shared.fail(&["--cache=shared", "ls"]);
    assert!(status == Some(1) && message.contains("--coherence-group"), "{message}");
}

#[test]
fn names_that_are_no_text_go_through() {
    let shared = Shared::new();
    let name = std::ffi::OsStr::from_bytes(b"no\xfftext\n");
    fs::write(shared.path().join(name), "x").unwrap();
    let found = shared.command(&["find", "-0", "--name", "no*"]).output().unwrap().stdout;
    assert_eq!(found, b"/no\xfftext\n\0");
    assert_eq!(shared.command(&["cat"]).arg(name).output().unwrap().stdout, b"x");
}

#[test]
fn what_is_copied_out_and_in_again_is_the_same() {
    let shared = Shared::new();
    let outside = tempfile::tempdir().unwrap();
    let sparse = File::create(shared.path().join("sub/sparse")).unwrap();
    sparse.set_len(1 << 32).unwrap();
    sparse.write_all_at(&[1; 70_000], 1 << 30).unwrap();
    let out = outside.path().to_str().unwrap();
    // 1. Copy out, and back in under another name.
    shared.run(&["cp", "-rp", ":sub", out]);
    shared.run(&["cp", "-rp", &format!("{out}/sub"), ":copied"]);
    shared.run(&["cp", ":hello", ":copied/within"]);
    for tree in [outside.path().join("sub"), shared.path().join("copied")] {
        assert_eq!(fs::read_link(tree.join("link")).unwrap(), Path::new("../hello"));
        assert!(tree.join("deep/.hidden").exists());
        let (copy, original) = (File::open(tree.join("sparse")).unwrap(), sparse.metadata().unwrap());
        let metadata = copy.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.mtime_nsec()), (original.len(), original.mtime_nsec()));
        assert!(metadata.blocks() < 1024, "{} blocks: the holes are filled", metadata.blocks());
        let mut data = vec![0; 70_001];
        copy.read_exact_at(&mut data, 1 << 30).unwrap();
        assert!(data[..70_000].iter().all(|&byte| byte == 1) && data[70_000] == 0);
    }
    assert_eq!(fs::read(shared.path().join("copied/within")).unwrap(), b"hello, world\n");
    // 2. Directories need --recursive, and one of the paths must be in the share.
    assert_eq!(shared.fail(&["cp", ":sub", out]).0, Some(1));
    assert_eq!(shared.fail(&["cp", out, out]).0, Some(1));
}

#[test]
fn a_copy_is_made_again_in_place_and_follows_no_link_that_stands_there() {
    let shared = Shared::new();
    let outside = tempfile::tempdir().unwrap();
    let out = outside.path().to_str().unwrap();
    shared.run(&["cp", "-r", ":sub", out]);
    fs::write(shared.path().join("sub/deep/.hidden"), "new").unwrap();
    shared.run(&["cp", "-r", ":sub", out]);
    assert_eq!(fs::read(outside.path().join("sub/deep/.hidden")).unwrap(), b"new");
    // 2. A link stands where a directory would go.
    fs::create_dir(outside.path().join("elsewhere")).unwrap();
    fs::remove_dir_all(outside.path().join("sub/deep")).unwrap();
    symlink("../elsewhere", outside.path().join("sub/deep")).unwrap();
    assert_eq!(shared.fail(&["cp", "-r", ":sub", out]).0, Some(1));
    assert_eq!(fs::read_dir(outside.path().join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let shared = Shared::new();
    symlink("sub/deep", shared.path().join("way-in")).unwrap();
    let host = shared.path().join("sub").into_os_string().into_string().unwrap();
    for arguments in [
        ["cp", "-r", ":sub", ":sub/deep"],
        ["cp", "-r", ":sub", ":sub/new"],
        ["cp", "-r", ":sub", ":way-in"],
        ["cp", "-r", ":sub", ":"],
    ] {
        let (code, message) = shared.fail(&arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {message}");
        assert!(message.contains("into itself"), "{arguments:?}: {message}");
    }
    assert_eq!(fs::read_dir(shared.path().join("sub")).unwrap().count(), 2);
    // 2. From the host, into the share of the same directory.
    shared.run(&["cp", "-r", &host, ":sub"]);
    assert!(shared.path().join("sub/sub/deep/.hidden").exists());
    assert!(!shared.path().join("sub/sub/sub").exists());
    // 3. Beside itself, under a name with the same prefix.
    shared.run(&["cp", "-r", ":sub/deep", ":sub/deeper"]);
    assert!(shared.path().join("sub/deeper/.hidden").exists());
}

#[test]
fn changes_reach_the_directory() {
    let shared = Shared::new();
    let there = |name: &str| shared.path().join(name);
    shared.run(&["mkdir", "-p", "a/b/c"]);
    shared.run(&["mv", "hello", "a/b"]);
    shared.run(&["ln", "a/b/hello", "second"]);
    shared.run(&["ln", "-s", "a/b", "short"]);
    shared.run(&["touch", "new", "second"]);
    assert_eq!(fs::metadata(there("second")).unwrap().nlink(), 2);
    assert_eq!(fs::read(there("short/hello")).unwrap(), b"hello, world\n");
    let mut write = shared.command(&["write", "--append", "new"]).stdin(Stdio::piped()).spawn().unwrap();
    write.stdin.take().unwrap().write_all(&[b'z'; 100_000]).unwrap();
    assert!(write.wait().unwrap().success());
    assert_eq!(fs::metadata(there("new")).unwrap().len(), 100_000);
    assert_eq!(shared.fail(&["mv", "-n", "new", "second"]).0, Some(1));
    assert_eq!(shared.fail(&["rm", "a"]).0, Some(1));
    shared.run(&["rm", "-r", "a", "short"]);
    assert!(!there("a").exists() && !there("short").exists());
    shared.run(&["rm", "-f", "absent"]);
}

#[test]
fn what_has_no_name_is_not_removed_and_what_is_in_it_stays() {
    let shared = Shared::new();
    for path in ["/", "//", ".", "..", "sub/..", "sub/.", "sub/./"] {
        let (code, message) = shared.fail(&["rm", "-rf", path]);
        assert_eq!(code, Some(1), "{path}: {message}");
        assert!(message.contains("no name"), "{path}: {message}");
    }
    assert!(shared.path().join("hello").exists());
    assert!(shared.path().join("sub/deep/.hidden").exists());
    shared.run(&["rm", "-r", "sub//"]);
    assert!(!shared.path().join("sub").exists());
}

#[test]
fn errors_name_the_path_and_the_reason_and_the_rest_is_done() {
    let shared = Shared::new();
    let output = shared.command(&["cat", "absent", "hello", "sub"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), b"hello, world\n".to_vec()));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("absent: No such file or directory") && stderr.contains("sub: Is a directory"), "{stderr}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    let output = command.args(["fs", "--shared-dir", "/nonexistent/share", "ls"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("/nonexistent/share"), "{stderr}");
}

#[test]
fn ctrl_c_ends_a_command_that_waits() {
    let shared = Shared::new();
    let mut write = shared.command(&["write", "waits"]).stdin(Stdio::piped()).spawn().unwrap();
    // The handlers are installed before the file is created.
    while !shared.path().join("waits").exists() {
        std::thread::yield_now();
    }
    // Kept open: waiting for the process would close it.
    let _input = write.stdin.take();
    kill_process(Pid::from_child(&write), Signal::INT).unwrap();
    assert_eq!(write.wait().unwrap().code(), Some(130));
}
