//! The command lines that other software starts a virtio-fs daemon with: each is understood, and each serves.
//!
//! In the lines `{S}` stands for a socket's path and `{D}` for a directory.

mod launch;

use std::path::PathBuf;

use launch::{Bench, has_user_namespaces, is_root, skipped};
use transom_daemon::capabilities::CAPABILITIES;
use transom_daemon::options::{self, CachePolicy, FileHandles, Invocation, Negotiation, Options, SandboxMode};
use transom_frontend::{self as frontend, FrontEnd};
use transom_vm::{packages::Cache, peer};

/// Who may run a line.
#[derive(PartialEq)]
enum By {
    Anyone,
    Root,
    OrdinaryUser,
}

struct Line {
    passed_by: &'static str,
    line: &'static str,
    by: By,
    means: fn(&Options) -> bool,
}

const LINES: &[Line] = &[
    Line {
        passed_by: "libvirt",
        line: "--fd=3 --shared-dir {D} --cache always --sandbox namespace --xattr --thread-pool-size=16 \
               --rlimit-nofile=1000 --log-level debug",
        by: By::Anyone,
        means: |o| o.cache.policy == CachePolicy::Always && o.attributes.xattr && o.workers.thread_pool_size == 16,
    },
    Line {
        passed_by: "libvirt, read-only, in a container",
        line: "--fd=3 --shared-dir {D} --readonly --cache never --sandbox chroot",
        by: By::Root,
        means: |o| o.share.is_readonly && o.isolation.sandbox == SandboxMode::Chroot,
    },
    Line {
        passed_by: "libvirt of an ordinary user",
        line: "--fd=3 --shared-dir {D} --uid-map=:0:1000:1: --gid-map=:0:1000:1:",
        by: By::OrdinaryUser,
        means: |o| o.ownership.namespace_uids[0].outside == 1000,
    },
    Line {
        passed_by: "libvirt before separate options",
        line: "--fd=3 -o source={D},cache=none,sandbox=namespace,xattr,no_flock,no_posix_lock -d",
        by: By::Anyone,
        means: |o| o.cache.policy == CachePolicy::Never && o.attributes.xattr && !o.locks.flock,
    },
    Line {
        passed_by: "libvirt before separate options, with locks",
        line: "--fd=3 -o source={D},cache=always,no_xattr,flock,posix_lock",
        by: By::Anyone,
        means: |o| !o.attributes.xattr && o.locks.flock && o.locks.posix,
    },
    Line {
        passed_by: "Kata, the runtime in Go",
        line: "--syslog --cache=auto --shared-dir={D} --fd=3 --thread-pool-size=1 --announce-submounts --xattr",
        by: By::Anyone,
        means: |o| o.log.syslog && o.share.announce_submounts && o.workers.thread_pool_size == 1,
    },
    Line {
        passed_by: "Kata, the runtime in Rust",
        line: "--socket-path {S} --shared-dir {D} --cache auto --thread-pool-size=1 -o announce_submounts --xattr",
        by: By::Anyone,
        means: |o| o.share.announce_submounts && o.attributes.xattr && o.cache.policy == CachePolicy::Auto,
    },
    Line {
        passed_by: "Incus, translating a range from 0",
        line: "--fd=3 --cache=metadata --shared-dir={D} --translate-uid=map:0:1000000:65536 \
               --translate-uid=forbid-guest:0:0 --translate-gid=map:0:1000000:65536 \
               --translate-gid=forbid-guest:0:0 --translate-uid=forbid-guest:65536:4294901759 \
               --translate-gid=forbid-guest:65536:4294901759",
        by: By::Anyone,
        means: |o| o.ownership.translate_uid.len() == 3 && o.cache.policy == CachePolicy::Metadata,
    },
    Line {
        passed_by: "Incus, translating one id",
        line: "--fd=3 --cache=never --shared-dir={D} --translate-uid=map:1000:1000:1 \
               --translate-uid=forbid-guest:0:1000 --translate-gid=map:1000:1000:1 \
               --translate-gid=forbid-guest:0:1000 --translate-uid=forbid-guest:1001:4294966294 \
               --translate-gid=forbid-guest:1001:4294966294",
        by: By::Anyone,
        means: |o| o.ownership.translate_gid.len() == 3 && o.cache.policy == CachePolicy::Never,
    },
    Line {
        passed_by: "Incus, with access control lists",
        line: "--fd=3 --cache=never --shared-dir={D} --posix-acl=auto",
        by: By::Anyone,
        means: |o| o.attributes.posix_acl == Negotiation::Auto && o.attributes.xattr,
    },
    Line {
        passed_by: "Incus, with access control lists and an older daemon",
        line: "--fd=3 --cache=always --shared-dir={D} --posix-acl",
        by: By::Anyone,
        means: |o| o.attributes.posix_acl == Negotiation::Always,
    },
    Line {
        passed_by: "Proxmox",
        line: "--fd=3 --shared-dir={D} --xattr --posix-acl --announce-submounts --allow-direct-io \
               --cache=always --syslog",
        by: By::Anyone,
        means: |o| o.cache.allow_direct_io && o.attributes.posix_acl == Negotiation::Always,
    },
    Line {
        passed_by: "Proxmox, a Windows guest",
        line: "--fd=3 --shared-dir={D} --announce-submounts --inode-file-handles=prefer --syslog",
        by: By::Anyone,
        means: |o| o.inodes.file_handles == FileHandles::Prefer && o.log.syslog,
    },
    Line {
        passed_by: "KubeVirt 1.5 to 1.9",
        line: "--socket-path={S} --shared-dir={D} --sandbox=none --cache=auto --migration-on-error=guest-error \
               --migration-mode=find-paths",
        by: By::Anyone,
        means: |o| o.isolation.sandbox == SandboxMode::None && o.cache.policy == CachePolicy::Auto,
    },
    Line {
        passed_by: "KubeVirt 1.9, a service account",
        line: "--socket-path={S} --shared-dir={D} --sandbox=none --cache=auto --migration-on-error=guest-error \
               --migration-mode=find-paths --translate-uid=host:107:0:1",
        by: By::Anyone,
        means: |o| o.ownership.translate_uid.len() == 1 && o.ownership.translate_gid.is_empty(),
    },
    Line {
        passed_by: "KubeVirt 1.4, with privileges",
        line: "--socket-path={S} --shared-dir={D} --cache=auto --xattr --sandbox=chroot",
        by: By::Root,
        means: |o| o.isolation.sandbox == SandboxMode::Chroot && o.attributes.xattr,
    },
    Line {
        passed_by: "KubeVirt, with file handles and one owner",
        line: "--socket-path {S} --shared-dir {D} --cache auto --sandbox chroot \
               --modcaps=+dac_read_search:-mknod --inode-file-handles=prefer --migration-mode=file-handles \
               --migration-on-error=guest-error --translate-uid=squash-guest:0:107:4294967295 \
               --translate-gid=squash-guest:0:107:4294967295 --xattr",
        by: By::Root,
        means: |o| o.isolation.capability_changes.len() == 2 && o.inodes.file_handles == FileHandles::Prefer,
    },
    Line {
        passed_by: "podman",
        line: "--sandbox none --socket-path {S} --shared-dir . --seccomp=none",
        by: By::Anyone,
        means: |o| o.share.path == std::path::Path::new("."),
    },
    Line {
        passed_by: "podman as root",
        line: "--sandbox none --socket-path {S} --shared-dir . --modcaps=-mknod:-setfcap --seccomp=none",
        by: By::Root,
        means: |o| o.isolation.capability_changes.iter().all(|change| !change.is_kept),
    },
    Line {
        passed_by: "microvm.nix",
        line: "--socket-path={S} --socket-group=0 --shared-dir={D} --rlimit-nofile 1000 --thread-pool-size 4 \
               --posix-acl --xattr --cache=auto --inode-file-handles=mandatory --tag=ro-store --readonly",
        by: By::Root,
        means: |o| o.share.tag.as_deref() == Some("ro-store") && o.inodes.file_handles == FileHandles::Mandatory,
    },
    Line {
        passed_by: "Lima",
        line: "--socket-path {S} --shared-dir {D}",
        by: By::Anyone,
        means: |o| o.isolation.sandbox == SandboxMode::Namespace,
    },
    Line {
        passed_by: "virtme-ng",
        line: "--syslog --no-announce-submounts --socket-path {S} --shared-dir {D} --sandbox none",
        by: By::Anyone,
        means: |o| !o.share.announce_submounts && o.isolation.sandbox == SandboxMode::None,
    },
    Line {
        passed_by: "virtme-ng, older",
        line: "--socket-path={S} -o source={D} -o cache=always -o sandbox=namespace",
        by: By::Anyone,
        means: |o| o.cache.policy == CachePolicy::Always,
    },
];

#[test]
fn every_line_is_understood() {
    let bench = Bench::new();
    for Line { passed_by, line, means, .. } in LINES {
        let words = std::iter::once("transomd".to_owned()).chain(bench.words(line));
        match options::parse(words) {
            Ok(Invocation::Serve(options)) => assert!(means(&options), "{passed_by}: {options:#?}"),
            other => panic!("{passed_by}: {other:?}"),
        }
    }
}

/// Starts the line, lets a front end negotiate and leave, and checks that the daemon ends well with it.
fn serve_one(bench: &Bench, passed_by: &str, line: &str) {
    let mut daemon = bench.start(line);
    let stream = daemon.connect();

    let negotiated = FrontEnd::over(stream, frontend::Options::default()).and_then(|front_end| {
        assert!(front_end.queue_count >= 2, "{passed_by}: the high-priority queue and one for requests");
        (0..2).try_for_each(|index| front_end.start_queue(index).map(drop))?;
        Ok(front_end)
    });
    let front_end = match negotiated {
        Ok(front_end) => front_end,
        Err(error) => panic!("{passed_by}: {error:#}: {:?}", daemon.wait()),
    };
    drop(front_end);

    let (status, said) = daemon.wait();
    assert_eq!(status.code(), Some(0), "{passed_by}: {said}");
    let expected: &[&str] = if line.contains("--fd") { &["socket"] } else { &[] };
    assert_eq!(bench.left_behind(), expected, "{passed_by}: {said}");
}

#[test]
fn every_line_serves_a_front_end_and_ends_with_it() {
    for Line { passed_by, line, by, .. } in LINES {
        match by {
            By::Root if !is_root() => skipped(&format!("{passed_by}: needs root")),
            By::OrdinaryUser => {}
            _ if !is_root() && !line.contains("none") && !has_user_namespaces() => {
                skipped(&format!("{passed_by}: user namespaces are not allowed here"));
            }
            _ => serve_one(&Bench::new(), passed_by, line),
        }
    }
}

#[test]
fn every_line_of_an_ordinary_user_serves_a_front_end_and_ends_with_it() {
    for Line { passed_by, line, by, .. } in LINES {
        if *by == By::Root {
            continue;
        }
        if !line.contains("none") && !has_user_namespaces() {
            skipped(&format!("{passed_by}: user namespaces are not allowed here"));
            continue;
        }
        let bench = Bench::of_ordinary_user();
        let own = if is_root() { launch::ORDINARY_ID } else { rustix::process::geteuid().as_raw() };
        serve_one(&bench, passed_by, &line.replace(":1000:", &format!(":{own}:")));
    }
}

#[test]
fn capabilities_are_printed_to_the_byte() {
    let answer =
        std::process::Command::new(env!("CARGO_BIN_EXE_transomd")).arg("--print-capabilities").output().unwrap();

    assert!(answer.status.success() && answer.stderr.is_empty());
    let expected = "{\n  \"type\": \"fs\",\n  \"features\": [\n    \"migrate-precopy\",\n    \
        \"posix-acl-negotiation-mode\",\n    \"security-label-negotiation-mode\",\n    \"separate-options\"\n  ]\n}\n";
    assert_eq!(String::from_utf8(answer.stdout).unwrap(), expected);
    assert_eq!(expected.trim_end(), CAPABILITIES);
}

#[test]
fn capabilities_are_those_of_virtiofsd() {
    let peers = ["virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"];
    let fetched = Cache::locate().ok().and_then(|cache| peer::existing(&cache, peer::Build::Packaged));
    let peers = peers.iter().map(PathBuf::from).chain(fetched);
    let mut answers = peers.filter_map(|peer| {
        let output = std::process::Command::new(&peer).arg("--print-capabilities").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        // Releases before 1.14 know fewer features.
        text.contains("security-label-negotiation-mode").then_some(text)
    });
    match answers.next_back() {
        Some(answer) => assert_eq!(answer.trim_end(), CAPABILITIES),
        None => skipped("no virtiofsd 1.14 here; transom-fetch peer --packaged fetches it"),
    }
}

#[test]
fn a_check_says_whether_the_share_or_the_machine_is_at_fault() {
    let folder = tempfile::tempdir().unwrap();
    let check = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_transomd"));
        let output = command.arg("--check").args(words).stdin(std::process::Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let share = folder.path().to_str().unwrap();
    // It warns of what it would warn of when it serves.
    let (status, said) = check(&["--shared-dir", share, "--sandbox", "none"]);
    assert!(status == Some(0) && !said.contains("ERROR"), "{status:?}: {said}");
    let (status, said) = check(&["--shared-dir", "/nonexistent", "--sandbox", "none"]);
    assert!(status == Some(1) && said.contains("cannot share /nonexistent"), "{status:?}: {said}");
    if !is_root() {
        return skipped("a check of an overlay needs root here");
    }
    let (status, said) = check(&["--shared-dir", "/", "--overlay", share]);
    assert!(status == Some(1) && said.contains("a file system is mounted at"), "{status:?}: {said}");
}
