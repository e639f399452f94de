//! Set-id programs on a mount, with passthrough and without: whoever overwrites one gets nobody's rights by it.
//!
//! The attacker is this test's executable again, as an ordinary user. The payload shows the rights that it runs with.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::{
            fs::{FileExt as _, PermissionsExt as _},
            process::CommandExt as _,
        },
    },
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxFlags, XattrFlags, statx};
use transom_mount::Options;

use crate::{
    common, needs_mounts,
    passthrough::{Mapped, Passing, has_passthrough, needs_passthrough},
};

/// Nobody.
const USER: u32 = 65_534;
/// Prints a file's content; of `/proc/self/status` it is the rights that it runs with.
const PAYLOAD: &str = "/bin/cat";
/// Set for the attacker: what it does, and the program to overwrite.
const ATTACK: &str = "TRANSOM_TEST_ATTACK";
const VICTIM: &str = "TRANSOM_TEST_VICTIM";
/// What the attacker says once it has the program open.
const OPENED: &str = "attacker: opened";
/// `security.capability`, revision 2: CAP_SETUID (7) permitted and effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 1 << 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Ways to put the payload into a program. All need no more than the right to write it.
const ATTACKS: [&str; 7] = ["write", "truncate", "append", "splice", "copy", "resize", "fallocate"];

/// Enough for two threads to meet in most ways, and far more than an execution takes to see that nobody writes.
const RACES: usize = 50;
const TRIES_MAX: usize = 100_000;

/// What makes a program run with other rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Privilege {
    User,
    Group,
    Capability,
}

impl Privilege {
    const ALL: [Self; 3] = [Self::User, Self::Group, Self::Capability];

    fn give(self, path: &Path) {
        let chmod = |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        match self {
            Self::User => chmod(0o4777),
            Self::Group => chmod(0o2777),
            Self::Capability => {
                rustix::fs::setxattr(path, "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
            }
        }
    }
}

/// When the program becomes dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// It is so before the attacker opens it.
    BeforeOpen,
    /// Root makes it so through the mount while the attacker has it open.
    AfterOpen,
    /// The same, on the host.
    AfterOpenOnHost,
}

/// The rights of a process, as `/proc/self/status` shows them.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    euid: u32,
    egid: u32,
    /// Effective.
    capabilities: u64,
}

impl Rights {
    const ORDINARY: Self = Self { euid: USER, egid: USER, capabilities: 0 };

    fn parse(status: &str) -> Option<Self> {
        let field =
            |name: &str, index| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().nth(index));
        Some(Self {
            euid: field("Uid:", 1)?.parse().ok()?,
            egid: field("Gid:", 1)?.parse().ok()?,
            capabilities: u64::from_str_radix(field("CapEff:", 0)?, 16).ok()?,
        })
    }
}

/// The payload without its first byte: nothing that runs, and all that is missing is a store.
fn harmless() -> Vec<u8> {
    let mut program = fs::read(PAYLOAD).unwrap();
    program[0] = 0;
    program
}

/// A process of an ordinary user that has `victim` open for `attack`.
struct Attacker {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Attacker {
    fn open(attack: &str, victim: &Path) -> Self {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "set_id::the_attacker", "--nocapture"]).env(ATTACK, attack).env(VICTIM, victim);
        command.uid(USER).gid(USER).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with(OPENED) {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "{attack}: the attacker cannot open the program");
        }
        Self { process, output }
    }

    /// Has it write and execute; returns the rights that it gets.
    fn go(mut self) -> Option<Rights> {
        // It ends with the pipe.
        drop(self.process.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        self.process.wait().unwrap();
        Rights::parse(&text)
    }
}

/// Not a test of its own: what [`Attacker`] runs.
#[test]
fn the_attacker() {
    let (Ok(attack), Ok(victim)) = (std::env::var(ATTACK), std::env::var(VICTIM)) else { return };
    if attack == "race" {
        println!("\n{OPENED}");
        io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return println!("{}", race(Path::new(&victim)));
    }
    let file = File::options().read(true).write(true).truncate(attack == "truncate").open(&victim).unwrap();
    println!("\n{OPENED}");
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    overwrite(&attack, file);
    let output = Command::new(&victim).arg("/proc/self/status").output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
}

/// Executes `victim` again and again while it gets its missing byte. Returns what it says, with rights of others if it
/// ever had them.
fn race(victim: &Path) -> String {
    let is_written = AtomicBool::new(false);
    thread::scope(|scope| {
        let executor = scope.spawn(|| {
            for _ in 0..TRIES_MAX {
                let is_last = is_written.load(Ordering::SeqCst);
                let output = Command::new(victim).arg("/proc/self/status").output();
                let text =
                    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
                let rights = Rights::parse(&text);
                if rights.is_some() && (is_last || rights != Some(Rights::ORDINARY)) {
                    return text;
                }
            }
            String::new()
        });
        // It is busy now and then, since the other thread executes it.
        while File::options().write(true).open(victim).and_then(|file| file.write_all_at(b"\x7f", 0)).is_err() {
            thread::yield_now();
        }
        is_written.store(true, Ordering::SeqCst);
        executor.join().unwrap()
    })
}

fn overwrite(attack: &str, mut file: File) {
    let payload = fs::read(PAYLOAD).unwrap();
    let len = payload.len() as u64;
    match attack {
        "write" | "truncate" => file.write_all(&payload).unwrap(),
        "append" => {
            file.seek(io::SeekFrom::End(0)).unwrap();
            file.write_all(b"more").unwrap();
            Mapped::new(&file, 4096).store(0, &payload[..1]);
        }
        "splice" => {
            let (out, into) = rustix::pipe::pipe().unwrap();
            for (index, part) in payload.chunks(4096).enumerate() {
                rustix::io::write(&into, part).unwrap();
                let mut offset = index as u64 * 4096;
                let flags = rustix::pipe::SpliceFlags::empty();
                let moved = rustix::pipe::splice(&out, None, &file, Some(&mut offset), part.len(), flags).unwrap();
                assert_eq!(moved, part.len());
            }
        }
        "copy" => {
            let source = File::open(PAYLOAD).unwrap();
            let mut at = 0;
            while at < len {
                let (mut from, mut to) = (at, at);
                let copied =
                    rustix::fs::copy_file_range(&source, Some(&mut from), &file, Some(&mut to), (len - at) as usize);
                match copied {
                    Ok(copied) => at += copied as u64,
                    // Between the two file systems.
                    Err(_) => {
                        at += rustix::fs::sendfile(&file, &source, Some(&mut from), (len - at) as usize).unwrap() as u64
                    }
                }
            }
        }
        "resize" => {
            file.set_len(len + 1).unwrap();
            Mapped::new(&file, 4096).store(0, &payload[..1]);
        }
        "fallocate" => {
            rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), len, 4096).unwrap();
            Mapped::new(&file, 4096).store(0, &payload[..1]);
        }
        "map" => Mapped::new(&file, 4096).store(0, &payload[..1]),
        other => panic!("no attack {other}"),
    }
}

/// Has an ordinary user overwrite a program of root's and execute it; returns the rights that it gets.
fn attack(share: &Passing, name: &str, attack: &str, privilege: Privilege, when: When) -> Option<Rights> {
    let (host, at) = (share.host(name), share.at(name));
    fs::write(&host, harmless()).unwrap();
    fs::set_permissions(&host, fs::Permissions::from_mode(0o777)).unwrap();
    if when == When::BeforeOpen {
        privilege.give(&at);
        refresh(&at);
    }
    let attacker = Attacker::open(attack, &at);
    match when {
        When::BeforeOpen => {}
        When::AfterOpen => privilege.give(&at),
        When::AfterOpenOnHost => privilege.give(&host),
    }
    refresh(&at);
    attacker.go()
}

/// Has the kernel get to know the file as it is, whatever it has cached.
fn refresh(path: &Path) {
    statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).unwrap();
}

fn attacks_fail(cache: &str) {
    let share = Passing::start(common::on_disk(), &[cache, "--xattr"]);
    check(share, &Privilege::ALL, &ATTACKS);
}

/// Has all of `attacks` fail, on programs with each of `privileges`.
fn check(share: Passing, privileges: &[Privilege], attacks: &[&str]) {
    let mut failures = Vec::new();
    for &privilege in privileges {
        for when in [When::BeforeOpen, When::AfterOpen, When::AfterOpenOnHost] {
            for &how in attacks {
                // Truncated by the open, which is before.
                if how == "truncate" && when != When::BeforeOpen {
                    continue;
                }
                let name = format!("{how}-{privilege:?}-{when:?}");
                let rights = attack(&share, &name, how, privilege, when);
                if rights != Some(Rights::ORDINARY) {
                    failures.push((name, rights));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    share.end();
}

#[test]
fn an_overwritten_program_has_no_ones_rights_with_attributes_cached_for_a_second() {
    needs_passthrough!();
    attacks_fail("--cache=auto");
}

#[test]
fn an_overwritten_program_has_no_ones_rights_with_attributes_cached_for_ever() {
    needs_passthrough!();
    attacks_fail("--cache=always");
}

#[test]
fn an_overwritten_program_has_no_ones_rights_without_a_cache() {
    needs_passthrough!();
    attacks_fail("--cache=never");
}

/// Without passthrough the daemon makes the writes; the kernel does not learn that they have cleared set-id bits.
#[test]
fn an_overwritten_program_has_no_ones_rights_if_writes_are_requests() {
    needs_mounts!();
    for (cache, others) in ["--cache=metadata", "--cache=always"].into_iter().flat_map(|cache| {
        [&["--xattr"][..], &["--xattr", "--killpriv-v2", "--writeback"]].map(|others| (cache, others))
    }) {
        let share = Passing::with(common::on_disk(), Options::default(), &[&[cache], others].concat());
        check(share, &Privilege::ALL, &["write", "truncate", "splice", "copy"]);
    }
}

#[test]
fn an_overwritten_program_loses_a_capability_that_has_another_name_on_the_host() {
    needs_passthrough!();
    let share = Passing::start(common::on_disk(), &["--xattrmap=:map::user.guest.:"]);
    let program = share.at("program");
    fs::copy(PAYLOAD, &program).unwrap();
    Privilege::Capability.give(&program);
    assert_ne!(run(&program), Rights::ORDINARY);
    // The other attacks make no WRITE, which is what the daemon takes it at.
    check(share, &[Privilege::Capability], &["write", "truncate", "append", "splice", "copy"]);
}

#[test]
fn a_program_that_is_overwritten_while_others_execute_it_never_has_its_owners_rights() {
    needs_passthrough!();
    for cache in ["--cache=auto", "--cache=always", "--cache=never"] {
        let share = Passing::start(common::on_disk(), &[cache]);
        for round in 0..RACES {
            let (host, at) = (share.host(&round.to_string()), share.at(&round.to_string()));
            fs::write(&host, harmless()).unwrap();
            Privilege::User.give(&host);
            refresh(&at);
            assert_eq!(Attacker::open("race", &at).go(), Some(Rights::ORDINARY), "{cache} {round}");
        }
        share.end();
    }
}

#[test]
fn a_store_through_a_mapping_leaves_no_more_rights_than_on_the_host() {
    needs_passthrough!();
    for cache in ["--cache=auto", "--cache=always", "--cache=never"] {
        let share = Passing::start(common::on_disk(), &[cache, "--xattr"]);
        for privilege in Privilege::ALL {
            // No file system of Linux takes the bits for such a store.
            let bare = share.host("bare");
            fs::write(&bare, harmless()).unwrap();
            fs::set_permissions(&bare, fs::Permissions::from_mode(0o777)).unwrap();
            privilege.give(&bare);
            let expected = Attacker::open("map", &bare).go();
            fs::remove_file(&bare).unwrap();
            for when in [When::BeforeOpen, When::AfterOpen, When::AfterOpenOnHost] {
                let name = format!("{privilege:?}-{when:?}");
                assert_eq!(attack(&share, &name, "map", privilege, when), expected, "{cache} {name}");
            }
        }
        share.end();
    }
}

#[test]
fn a_program_that_nobody_has_written_has_its_rights() {
    needs_passthrough!();
    for cache in ["--cache=auto", "--cache=always", "--cache=never"] {
        let share = Passing::start(common::on_disk(), &[cache, "--xattr"]);
        for privilege in Privilege::ALL {
            let bare = share.host("bare");
            fs::copy(PAYLOAD, &bare).unwrap();
            privilege.give(&bare);
            let expected = run(&bare);
            assert_ne!(expected, Rights::ORDINARY, "{privilege:?}");
            fs::remove_file(&bare).unwrap();
            // As cp(1) and chmod(1) make it, through the mount.
            let path = share.at(&format!("{privilege:?}"));
            fs::copy(PAYLOAD, &path).unwrap();
            privilege.give(&path);
            assert_eq!(run(&path), expected, "{cache} {privilege:?}");
            assert_eq!(run(&path), expected, "{cache} {privilege:?}");
            // A write takes the rights away, and they can be given again.
            File::options().write(true).open(&path).unwrap().write_all_at(b"\x7f", 0).unwrap();
            assert_eq!(run(&path), Rights::ORDINARY, "{cache} {privilege:?}");
            privilege.give(&path);
            assert_eq!(run(&path), expected, "{cache} {privilege:?}");
        }
        share.end();
    }
}

/// Has an ordinary user run the payload at `path`.
fn run(path: &Path) -> Rights {
    let output = Command::new(path).arg("/proc/self/status").uid(USER).gid(USER).output().unwrap();
    Rights::parse(&String::from_utf8_lossy(&output.stdout)).unwrap()
}
