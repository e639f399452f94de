//! A hostile program, root in its guest, tries to get more than `transom run` gives it: hidden files, the host's files
//! outside of its overlay, more disk than its quota, hosts that are not allowed, and a life after `transom discard`.
//!
//! Each attempt prints its name and what it got. `docs/reports/021-sandbox.md` has the table.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

/// Well above the time of a boot on a busy machine, so that only a run that hangs reaches it.
const LIMIT_S: &str = "400";

/// `try` prints `NAME got OUTPUT` if the command of an attempt succeeds, and `NAME refused` otherwise. `can` does the
/// same with `control-NAME`: the attempt's control does the same thing to an object that the guest may use, and has to
/// succeed, so that a mistake in the script or a missing tool is not taken for a refusal.
const TRY: &str = r#"
try() { name=$1; shift; if out=$(sh -c "$*" 2>/dev/null); then echo "$name got $out"; else echo "$name refused"; fi; }
can() { name=$1; shift; try "control-$name" "$@"; }
"#;

/// The share is `/mnt/d`, an overlay in which `secret` and `dir/secret` are hidden; `/mnt/plain` is read-only.
const ATTACK: &str = r#"
cd /mnt/d
try read-hidden cat secret
can read-hidden cat file
try read-hidden-below cat dir/secret/key
can read-hidden-below cat dir/public/key
try read-hidden-dots cat ./dir/../secret
can read-hidden-dots cat ./dir/../file
try read-hidden-link 'ln -s /mnt/d/secret link && cat link'
can read-hidden-link 'ln -s /mnt/d/file own-link && cat own-link'
try read-hidden-hard-link 'ln secret hard && cat hard'
can read-hidden-hard-link 'ln file own-hard && cat own-hard'
try read-hidden-rename 'mv dir moved && cat moved/secret/key; got=$?; mv moved dir; exit $got'
can read-hidden-rename 'mv open moved && cat moved/key; got=$?; mv moved open; exit $got'
try read-hidden-second-mount 'mkdir -p /m && mount -t virtiofs share0 /m && cat /m/secret'
can read-hidden-second-mount 'mkdir -p /n && mount -t virtiofs share0 /n && cat /n/file'
try list-hidden 'ls -A . dir | grep -c secret'
can list-hidden 'ls -A . dir | grep -c public'
try replace-hidden-file 'echo evil > secret'
can replace-hidden-file 'echo good > own'
try replace-hidden-directory 'mkdir dir/secret'
can replace-hidden-directory 'mkdir dir/own'
try replace-hidden-rename 'echo evil > evil && mv evil secret'
can replace-hidden-rename 'echo good > good && mv good own'
try write-above 'echo evil > ../../../../../../../evil-above && cat /mnt/plain/../../evil-above'
try write-read-only 'echo evil > /mnt/plain/file'
can write-read-only 'echo good > /mnt/d/own'
try write-remounted 'mount -o remount,rw /mnt/plain && echo evil > /mnt/plain/file'
can write-remounted 'mkdir /r && mount -t tmpfs -o ro none /r && mount -o remount,rw /r && echo good > /r/file'
try write-second-mount 'mkdir -p /p && mount -t virtiofs share1 /p && echo evil > /p/file'
can write-second-mount 'mkdir -p /q && mount -t virtiofs share0 /q && echo good > /q/own'
try write-through-link 'ln -s HOST/outside out && echo evil > out'
can write-through-link 'ln -s /mnt/d/own own-out && echo good > own-out'
try read-through-link 'ln -s HOST/outside in && cat in'
can read-through-link 'ln -s /mnt/plain/file own-in && cat own-in'
try write-times 'touch -d 2001-01-01 /mnt/plain/file'
can write-times 'touch -d 2001-01-01 /mnt/d/file'
try make-device 'mknod sda b 8 0 && cat sda'
can make-device 'mknod /dev/own b 1 0 && mknod /dev/own-null c 1 3 && cat /dev/own-null'
try exceed-quota 'dd if=/dev/zero of=big bs=64k count=200'
can exceed-quota 'rm -f big; dd if=/dev/zero of=small bs=64k count=2'
try exceed-quota-again 'rm -f big; for i in $(seq 200); do dd if=/dev/zero of=part$i bs=64k count=1 || exit; done'
rm -f big part*
can exceed-quota-again 'for i in $(seq 5); do dd if=/dev/zero of=part$i bs=64k count=1 || exit; done'
try reach-allowed wget -q -O - http://localhost:PORT/
try reach-other-port wget -q -O - http://localhost:OTHER/
can reach-other-port wget -q -O - http://localhost:PORT/
try reach-other-name wget -q -O - http://example.org/
can reach-other-name wget -q -O - http://allowed.example:PORT/
try reach-by-address wget -q -O - http://192.0.2.1/
can reach-by-address wget -q -O - http://127.0.0.1:PORT/
try reach-gateway wget -q -O - http://10.0.2.2:OTHER/
can reach-gateway wget -q -O - http://127.0.0.1:PORT/
try survive-file 'mkdir -p .git/hooks && echo evil > .git/hooks/post-checkout && chmod 4777 .git/hooks/post-checkout'
try survive-process '(nohup sh -c "while :; do echo evil > /mnt/d/late; sleep 1; done" >/dev/null 2>&1 &)'
"#;

/// The attempts that get something, and what: files and processes are the guest's own business, in its own overlay.
const GRANTED: [(&str, &str); 4] = [
    // The file is in the guest's root.
    ("write-above", "evil"),
    ("reach-allowed", "welcome"),
    ("survive-file", ""),
    ("survive-process", ""),
];

fn missing() -> Option<String> {
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    match (has_qemu, daemon.is_file()) {
        (true, true) => None,
        (false, _) => Some("no qemu-system-x86_64 in PATH".to_owned()),
        (true, false) => Some(format!("no daemon {daemon:?}; build transomd")),
    }
}

/// A web server that welcomes everyone, until this process ends.
fn server() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\nwelcome");
        }
    });
    port
}

fn transom(state: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(arguments).env("XDG_STATE_HOME", state).stdin(Stdio::null()).output().unwrap()
}

/// Returns paths, modes and contents of everything in a directory.
fn snapshot(path: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path.clone(), (metadata.mode(), metadata.mtime(), content));
        if metadata.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// Checks that every attempt got what it should, and every control something.
#[track_caller]
fn check_attempts(said: &str, error: &str) {
    let result = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} says nothing: {said}{error}"))
    };
    let names = |verb: &'static str| {
        ATTACK.lines().filter_map(move |line| line.strip_prefix(verb)?.split(' ').next()).collect::<BTreeSet<_>>()
    };
    let (attempts, controls) = (names("try "), names("can "));
    let granted: BTreeSet<_> = GRANTED.iter().map(|(name, _)| *name).collect();
    assert_eq!(controls, &attempts - &granted, "every attempt that must fail has a control");
    for name in &controls {
        let got = result(&format!("control-{name}"));
        assert!(got.starts_with("got"), "control-{name} {got}: {said}{error}");
        assert_eq!(result(name), "refused", "{name}: {said}{error}");
    }
    for (name, what) in GRANTED {
        assert_eq!(result(name), format!("got {what}"), "{name}: {said}{error}");
    }
}

#[test]
fn a_hostile_guest_gets_only_what_it_was_given() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED: a_hostile_guest_gets_only_what_it_was_given: {why}");
    }
    let host = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |name: &str| host.path().join(name);
    for directory in ["d/dir/secret", "d/dir/public", "d/open", "plain"] {
        fs::create_dir_all(at("tree").join(directory)).unwrap();
    }
    for (name, content) in [
        ("d/secret", "SECRET"),
        ("d/dir/secret/key", "SECRET"),
        ("d/dir/public/key", "public"),
        ("d/open/key", "public"),
        ("d/file", "mine"),
        ("plain/file", "mine"),
        ("outside", "OUTSIDE"),
    ] {
        fs::write(at("tree").join(name), content).unwrap();
    }
    let before = snapshot(&at("tree"));
    let (port, other) = (server(), server());
    let script = format!("{TRY}{ATTACK}")
        .replace("HOST", at("tree").to_str().unwrap())
        .replace("PORT", &port.to_string())
        .replace("OTHER", &other.to_string());
    let [d, plain] = ["tree/d", "tree/plain"].map(|name| at(name).to_str().unwrap().to_owned());
    let hidden = [format!("{d}/secret"), format!("{d}/dir/secret")];
    let (share, read_only, allowed) =
        (format!("{d}:/mnt/d,overlay"), format!("{plain}:/mnt/plain,ro"), format!("localhost:{port}"));
    let named = format!("allowed.example:{port}");
    let arguments = [
        &["run", "--timeout", LIMIT_S, "--share", &share, "--share", &read_only][..],
        &["--hide", &hidden[0], "--hide", &hidden[1], "--disk", "4M", "--allow-host", &allowed],
        &["--allow-host", &named, "--resolve", "allowed.example:127.0.0.1"],
        &["--", "sh", "-c", &script],
    ];
    let output = transom(&at("state"), &arguments.concat());
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{error}");

    println!("{said}");
    check_attempts(&said, &error);
    assert!(!said.contains("SECRET") && !said.contains("OUTSIDE"), "{said}");
    assert!(error.contains("example.org was refused"), "{error}");

    // Nothing has changed on the host, and nothing of the guest is left after the changes are discarded.
    assert_eq!(snapshot(&at("tree")), before);
    assert!(!Path::new("/evil-above").exists());
    let discarded = transom(&at("state"), &["discard", &d]);
    assert!(discarded.status.success(), "{discarded:?}");
    assert_eq!(snapshot(&at("tree")), before);
    let again = transom(&at("state"), &["run", "--timeout", LIMIT_S, "--share", &share, "--", "ls", "-A"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "dir\nfile\nopen\nsecret\n", "{again:?}");
    assert!(!String::from_utf8_lossy(&again.stderr).contains("continues"), "{again:?}");
}
