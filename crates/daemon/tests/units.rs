//! The units of systemd: valid, and a daemon that is started as they say serves.

mod launch;

use launch::{Bench, has_user_namespaces, is_root, skipped};
use std::fs;
use std::path::Path;
use std::process::Command;
use transom_frontend::{FrontEnd, Options};

fn unit(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/systemd").join(name)).unwrap()
}

/// Returns the values of `key` in `unit`, separated by spaces.
fn values(unit: &str, key: &str) -> String {
    let lines = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    lines.collect::<Vec<_>>().join(" ")
}

#[test]
fn systemd_accepts_the_units() {
    let dir = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_transomd")).parent().unwrap();
    // An instance that is a path, and one that is a name.
    let instances = ["srv-share", "photos"].iter().flat_map(|instance| {
        ["service", "socket"].map(|kind| {
            let path = dir.path().join(format!("transomd@{instance}.{kind}"));
            let text = unit(&format!("transomd@.{kind}")).replace("@bindir@", bin.to_str().unwrap());
            fs::write(&path, text).unwrap();
            path
        })
    });
    let agent = dir.path().join("transom-agent.service");
    // Of the programs of this workspace, only the daemon is certain to be built.
    let text = unit("transom-agent.service").replace("@bindir@/transom-agent", env!("CARGO_BIN_EXE_transomd"));
    fs::write(&agent, text).unwrap();
    let instances: Vec<_> = instances.chain([agent]).collect();

    let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(instances).output() else {
        return skipped("systemd-analyze is not installed");
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let is_about = |line: &&str| line.contains("transomd@") || line.contains("transom-agent");
    let about_units: Vec<_> = said.lines().filter(is_about).collect();
    if !output.status.success() && about_units.is_empty() {
        return skipped(&format!("systemd-analyze cannot check units here: {said}"));
    }
    assert!(output.status.success() && about_units.is_empty(), "{said}");
}

/// Returns a command that takes from a program what the unit takes from the service, as far as tools for that exist.
fn restricted(service: &str) -> Vec<String> {
    let kept = values(service, "CapabilityBoundingSet").to_lowercase();
    let kept: Vec<_> = kept.split_whitespace().map(|name| name.replace("cap_", "+")).collect();
    let limit = values(service, "LimitNOFILE");
    let shell = format!("ulimit -n {limit} 2>/dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\"");
    let mut words: Vec<String> = vec!["sh".into(), "-c".into(), shell, "sh".into()];
    if is_root() {
        words.extend(["unshare", "--net", "setpriv", "--no-new-privs"].map(String::from));
        words.push(format!("--bounding-set=-all,{}", kept.join(",")));
    }
    words
}

#[test]
fn the_service_serves_the_front_end_that_connects_to_its_socket() {
    if !is_root() && !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    let service = unit("transomd@.service");
    let line = values(&service, "ExecStart").replace("${SHARED_DIR}", "{D}");
    let args = line.strip_prefix("@bindir@/transomd ").unwrap();
    assert!(args.contains("--fd=3") && args.ends_with(" $OPTIONS"), "{args}");
    let wrapper = restricted(&service);
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();

    for options in ["", "--cache=always --xattr --posix-lock", "--sandbox=chroot", "--sandbox=none"] {
        if options.contains("chroot") && !is_root() {
            continue;
        }
        let bench = Bench::new();
        let mut daemon = bench.start_under(&wrapper, &args.replace("$OPTIONS", options), |_| {});
        let front_end = match FrontEnd::over(daemon.connect(), Options::default()) {
            Ok(front_end) => front_end,
            Err(error) => panic!("{options}: {error:#}: {:?}", daemon.wait()),
        };
        drop(front_end);
        let (status, said) = daemon.wait();
        assert_eq!(status.code(), Some(0), "{options}: {said}");
        // A socket unit owns its socket.
        assert_eq!(bench.left_behind(), ["socket"], "{options}: {said}");
    }
}

#[test]
fn the_service_needs_no_capability_that_its_bounding_set_lacks() {
    let kept = values(&unit("transomd@.service"), "CapabilityBoundingSet");

    // The daemon's own, those of setting up the sandbox, and those of the process that makes views of files.
    let usual =
        ["CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "SETGID", "SETUID", "MKNOD", "SETFCAP"];
    let setup = ["SETPCAP", "SYS_ADMIN", "SYS_CHROOT", "SYS_RESOURCE", "KILL", "SYS_PTRACE"];
    for capability in usual.iter().chain(&setup) {
        assert!(kept.split_whitespace().any(|name| name == format!("CAP_{capability}")), "{capability}: {kept}");
    }
}
