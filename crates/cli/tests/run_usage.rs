//! Command lines of `transom` that must be refused before anything is booted.

use std::process::{Command, Output};

fn transom(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_transom")).args(arguments).output().unwrap()
}

/// Runs `transom` and checks that it fails with `code`, and says all of `texts`.
#[track_caller]
fn is_refused(arguments: &[&str], code: i32, texts: &[&str]) {
    let output = transom(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    for text in texts {
        assert!(error.contains(text), "{arguments:?}: {error}");
    }
}

#[test]
fn a_share_over_the_root_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().to_str().unwrap();
    for guest in ["/", "//", "/."] {
        let share = format!("{host}:{guest}");
        is_refused(&["run", "--share", &share, "--", "true"], 125, &["over the guest's root", "--root HOST"]);
    }
    is_refused(&["run", "--root", "/", "--share", "/", "--", "true"], 125, &["over the guest's root"]);
}

#[test]
fn shares_at_one_path_are_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = ["a/src", "b/src"].map(|name| folder.path().join(name));
    hosts.iter().for_each(|host| std::fs::create_dir_all(host).unwrap());
    let [a, b] = hosts.each_ref().map(|host| host.to_str().unwrap());
    is_refused(&["run", "--share", a, "--share", b, "--", "true"], 125, &[a, b, "\"/mnt/src\""]);
}

#[test]
fn a_mistyped_option_is_no_command() {
    let texts = ["unexpected argument '--timout'", "'--timeout'"];
    is_refused(&["run", "--share", ".", "--timout", "5", "--", "true"], 125, &texts);
    is_refused(&["run", "--share", ".", "-Z", "true"], 125, &["unexpected argument '-Z'"]);
    is_refused(&["run", "--cpus", "none"], 125, &["'none'"]);
}

#[test]
fn too_little_memory_and_what_is_no_kernel_are_refused() {
    is_refused(&["run", "-m", "64", "--", "true"], 125, &["64 MiB is too little", "128 MiB"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [1; 4096]).unwrap();
    let kernel = file.path().to_str().unwrap();
    let arguments = ["run", "--root", "/", "--vmm", "uml", "--kernel", kernel, "--", "true"];
    is_refused(&arguments, 125, &["is not a Linux kernel", kernel]);
}

#[test]
fn a_mistyped_subcommand_brings_the_nearest_to_mind() {
    is_refused(&["rnu"], 2, &["unrecognized subcommand 'rnu'", "'run'"]);
    is_refused(&["mout"], 2, &["'mount'"]);
    is_refused(&["fs", "-d", ".", "sl"], 2, &["'ls'"]);
}

#[test]
fn help_is_no_failure() {
    for arguments in [&["run", "--help"][..], &["--version"], &["fs", "--help"]] {
        assert_eq!(transom(arguments).status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn a_cache_without_room_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let script = "mount -t tmpfs -o size=8M none \"$1\" || exit 77; exec \"$2\" run -- true";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh", cache, env!("CARGO_BIN_EXE_transom")])
        .env("TRANSOM_CACHE", cache)
        .env_remove("TRANSOM_KERNEL")
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) && output.status.code() != Some(1) => output,
        other => return println!("SKIPPED: no small disk can be mounted: {other:?}"),
    };
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("the daemon") {
        return println!("SKIPPED: {error}");
    }
    assert_eq!(output.status.code(), Some(125), "{error}");
    for text in ["no space left in", "free, 256 MiB needed", "set TRANSOM_CACHE to a directory on a larger disk"] {
        assert!(error.contains(text), "{error}");
    }
}
