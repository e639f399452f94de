//! A hostile program, root in its guest, tries to get more than `transom run` gives it: hidden files, the host's files
//! outside of its overlay, more disk than its quota, hosts that are not allowed, and a life after `transom discard`.
//!
//! Each attempt prints its name and what it got. `docs/reports/021-sandbox.md` has the table.

use std::{
    collections::BTreeMap,
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

/// Prints `NAME got OUTPUT` if the command of an attempt succeeds, and `NAME refused` otherwise.
const TRY: &str = r#"
try() { name=$1; shift; if out=$(sh -c "$*" 2>/dev/null); then echo "$name got $out"; else echo "$name refused"; fi; }
"#;

/// The share is `/mnt/d`, an overlay in which `secret` and `dir/secret` are hidden; `/mnt/plain` is read-only.
const ATTACK: &str = r#"
cd /mnt/d
try read-hidden cat secret
try read-hidden-below cat dir/secret/key
try read-hidden-dots cat ./dir/../secret
try read-hidden-link 'ln -s /mnt/d/secret link && cat link'
try read-hidden-hard-link 'ln secret hard && cat hard'
try read-hidden-rename 'mv dir moved && cat moved/secret/key'
try read-hidden-second-mount 'mkdir -p /m && mount -t virtiofs share0 /m && cat /m/secret'
try list-hidden 'ls -A . dir | grep -c secret'
try replace-hidden-file 'echo evil > secret'
try replace-hidden-directory 'mkdir dir/secret'
try replace-hidden-rename 'echo evil > evil && mv evil secret'
try write-above 'echo evil > ../../../../../../../evil-above && cat /mnt/plain/../../evil-above'
try write-read-only 'echo evil > /mnt/plain/file'
try write-remounted 'mount -o remount,rw /mnt/plain && echo evil > /mnt/plain/file'
try write-second-mount 'mkdir -p /p && mount -t virtiofs share1 /p && echo evil > /p/file'
try write-through-link 'ln -s HOST/outside out && echo evil > out'
try read-through-link 'cat HOST/outside'
try write-times 'touch -d 2001-01-01 /mnt/plain/file'
try make-device 'mknod sda b 8 0 && cat sda'
try exceed-quota 'dd if=/dev/zero of=big bs=64k count=200'
try exceed-quota-again 'rm -f big; for i in $(seq 200); do dd if=/dev/zero of=part$i bs=64k count=1 || exit; done'
rm -f big part*
try reach-allowed wget -q -O - http://localhost:PORT/
try reach-other-port wget -q -O - http://localhost:OTHER/
try reach-other-name wget -q -O - http://example.org/
try reach-by-address wget -q -O - http://192.0.2.1/
try reach-gateway wget -q -O - http://10.0.2.2:OTHER/
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

#[test]
fn a_hostile_guest_gets_only_what_it_was_given() {
    if let Some(why) = missing() {
        return eprintln!("SKIPPED: a_hostile_guest_gets_only_what_it_was_given: {why}");
    }
    let host = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |name: &str| host.path().join(name);
    fs::create_dir_all(at("tree/d/dir/secret")).unwrap();
    fs::create_dir(at("tree/plain")).unwrap();
    for (name, content) in [
        ("d/secret", "SECRET"),
        ("d/dir/secret/key", "SECRET"),
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
    let arguments = [
        &["run", "--timeout", LIMIT_S, "--share", &share, "--share", &read_only][..],
        &["--hide", &hidden[0], "--hide", &hidden[1], "--disk", "4M", "--allow-host", &allowed],
        &["--", "sh", "-c", &script],
    ];
    let output = transom(&at("state"), &arguments.concat());
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{error}");

    println!("{said}");
    let attempts = ATTACK.lines().filter(|line| line.starts_with("try ")).count();
    let lines: Vec<_> = said.lines().filter(|line| line.ends_with(" refused") || line.contains(" got ")).collect();
    assert_eq!(lines.len(), attempts, "{said}{error}");
    for line in &lines {
        let name = line.split(' ').next().unwrap();
        let expected = match GRANTED.iter().find(|(granted, _)| *granted == name) {
            Some((_, what)) => format!("{name} got {what}"),
            None => format!("{name} refused"),
        };
        assert_eq!(**line, expected, "{said}{error}");
    }
    assert!(!said.contains("SECRET") && !said.contains("OUTSIDE"), "{said}");
    assert!(error.contains("example.org was refused"), "{error}");

    // Nothing has changed on the host, and nothing of the guest is left after the changes are discarded.
    assert_eq!(snapshot(&at("tree")), before);
    assert!(!Path::new("/evil-above").exists());
    let discarded = transom(&at("state"), &["discard", &d]);
    assert!(discarded.status.success(), "{discarded:?}");
    assert_eq!(snapshot(&at("tree")), before);
    let again = transom(&at("state"), &["run", "--timeout", LIMIT_S, "--share", &share, "--", "ls", "-A"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "dir\nfile\nsecret\n", "{again:?}");
    assert!(!String::from_utf8_lossy(&again.stderr).contains("continues"), "{again:?}");
}
