//! The units of systemd: valid, and a daemon that is started as they say serves, and is
//! replaced when it is reloaded.

mod launch;

use launch::{Bench, has_user_namespaces, is_root, skipped};
use std::fs;
use std::path::Path;
use std::process::Command;
use transom_frontend::{FrontEnd, Options, fuse::Session};

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
    let args = arguments(&service);
    assert!(args.contains("--fd=3") && args.ends_with(" $OPTIONS"), "{args}");
    let wrapper = restricted(&service);
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();

    for options in ["", "--cache=always --xattr --posix-lock", "--sandbox=chroot", "--sandbox=none"] {
        if options.contains("chroot") && !is_root() {
            continue;
        }
        let bench = Bench::new();
        let args = args.replace("$UPGRADABLE", "").replace("$OPTIONS", options);
        let mut daemon = bench.start_under(&wrapper, &args, |_| {});
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

/// Returns the arguments of the service's daemon, with the test's share.
fn arguments(service: &str) -> String {
    let line = values(service, "ExecStart").replace("${SHARED_DIR}", "{D}");
    line.strip_prefix("@bindir@/transomd ").unwrap().to_owned()
}

#[test]
fn a_reload_of_the_service_replaces_its_daemon() {
    if !is_root() && !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    let service = unit("transomd@.service");
    let environment = values(&service, "Environment");
    let upgradable = environment.split_whitespace().find_map(|word| word.strip_prefix("UPGRADABLE=")).unwrap();
    let args = arguments(&service).replace("$UPGRADABLE", upgradable).replace("$OPTIONS", "--posix-lock");
    let reload = values(&service, "ExecReload");
    let wrapper = restricted(&service);
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();

    let bench = Bench::with_executable();
    let mut daemon = bench.start_under(&wrapper, &args, |_| {});
    let front_end = FrontEnd::over(daemon.connect(), Options::default()).unwrap();
    let _hiprio = front_end.start_queue(0).unwrap();
    let mut session = Session::begin(front_end.start_queue(1).unwrap()).unwrap();
    for _ in 0..2 {
        // Where the socket unit has its socket, by the instance's name.
        let words = reload.replace("/run/transomd/%i.sock", bench.socket().to_str().unwrap());
        let words = words.replace("@bindir@/transomd", bench.executable().to_str().unwrap());
        let mut words = words.split(' ');
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(words.next().unwrap()).args(words);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("upgraded: "));
        session.getattr(1, None).unwrap();
    }
    drop((session, front_end));
    let (status, said) = daemon.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(bench.left_behind(), ["socket"], "{said}");
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
