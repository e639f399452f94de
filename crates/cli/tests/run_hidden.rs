//! What a guest with the host's root cannot read, whatever its root user tries; and which share is where.

mod needs;

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Command, Output, Stdio},
};

use needs::is_skipped;
use tempfile::TempDir;

/// Well above the time of a boot on a busy machine, so that only a run that hangs reaches it.
const LIMIT_S: &str = "400";

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(["run", "--timeout", LIMIT_S]).args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

/// Runs `script` in a guest and returns what it wrote.
#[track_caller]
fn shell(arguments: &[&str], script: &str) -> String {
    let output = run(&[arguments, &["--", "sh", "-c", script]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A directory of the host outside of those that the guest has itself, and of homes.
fn folder() -> TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

#[test]
fn a_guest_with_the_hosts_root_reads_no_secret_by_any_way() {
    if is_skipped("a_guest_with_the_hosts_root") {
        return;
    }
    // 1. Secrets on the host: by name, by a path that is hidden, and by a link to it; and something to read.
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(path("extra/below")).unwrap();
    fs::create_dir(path(".ssh")).unwrap();
    for name in [".npmrc", ".ssh/id", "extra/below/file", "linked"] {
        fs::write(path(name), "SECRET").unwrap();
    }
    fs::hard_link(path("linked"), path("another-name")).unwrap();
    symlink("extra", path("link")).unwrap();
    fs::write(path("plain"), "plain").unwrap();

    // 2. Root of the guest tries their names, then the daemon's share without the layer above it, and its /proc.
    let dir = folder.path().display();
    let script = format!(
        "cd {dir}; ls -A; cat plain; echo; mkdir -p /run/again && mount -t virtiofs root /run/again || exit 9
         for top in '' /run/again; do
             cat $top/etc/shadow $top/root/.bash_history $top/proc/1/environ
             cd $top{dir}; cat .npmrc .ssh/id extra/below/file link/below/file linked another-name
             ls -A $top{dir}/extra $top/home
         done 2> /dev/null
         ls -A /run/again/proc /run/again/run /run/again/tmp /run/again/root/.ssh 2>&1 | grep -v '^$'"
    );
    let hide = [path("extra"), path("linked")];
    let output = shell(&["--root", "/", "--hide", &hide[0], "--hide", &hide[1]], &script);
    let expected = "link\nplain\nplain\n";
    assert!(output.starts_with(expected), "{output}");
    assert!(!output.contains("SECRET") && !output.contains("root:"), "{output}");
    assert!(!output.contains("cpuinfo") && !output.contains("below"), "{output}");
}

#[test]
fn what_is_shown_can_be_read_and_tools_in_a_home_work() {
    if is_skipped("what_is_shown") {
        return;
    }
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for place in ["home/.cargo/bin", "home/project"] {
        fs::create_dir_all(path(place)).unwrap();
    }
    for file in [".npmrc", "home/.cargo/bin/tool", "home/.cargo/credentials.toml", "home/diary", "home/project/code"] {
        fs::write(path(file), "here").unwrap();
    }
    let script = format!("cd {}; ls -A . home home/.cargo home/.cargo/bin home/project", folder.path().display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(["run", "--timeout", LIMIT_S, "--root", "/", "--show", &path(".npmrc")]);
    command.args(["--share", &path("home/project"), "--", "sh", "-c", &script]).env("HOME", path("home"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let names: String = String::from_utf8_lossy(&output.stdout).replace('\n', " ");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        names,
        ".: .npmrc home  home: .cargo project  home/.cargo: bin  home/.cargo/bin: tool  home/project: code "
    );
}

#[test]
fn a_share_inside_another_is_seen_in_whatever_order_they_are_given() {
    if is_skipped("a_share_inside_another") {
        return;
    }
    let (outer, inner) = (folder(), folder());
    fs::write(outer.path().join("of-outer"), "").unwrap();
    fs::write(inner.path().join("of-inner"), "").unwrap();
    let shares = [format!("{}:/x/sub", inner.path().display()), format!("{}:/x", outer.path().display())];
    let output = shell(&["--share", &shares[0], "--share", &shares[1]], "pwd; ls /x /x/sub");
    assert_eq!(output, "/x/sub\n/x:\nof-outer\nsub\n\n/x/sub:\nof-inner\n");
}

#[test]
fn a_share_that_a_symbolic_link_leads_over_another_is_refused() {
    if is_skipped("a_share_that_a_symbolic_link") {
        return;
    }
    let (with_link, hidden, hiding) = (folder(), folder(), folder());
    symlink("/mnt/y", with_link.path().join("l")).unwrap();
    let share = |folder: &TempDir, guest: &str| format!("{}:{guest}", folder.path().display());
    let shares = [share(&with_link, "/x"), share(&hidden, "/mnt/y"), share(&hiding, "/x/l")];
    let output = run(&["--share", &shares[0], "--share", &shares[1], "--share", &shares[2], "--", "true"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{error}");
    assert!(error.contains("\"/mnt/y\" is hidden by another one"), "{error}");
}

#[test]
fn the_command_line_says_where_each_share_is() {
    if is_skipped("the_command_line_says") {
        return;
    }
    let folder = folder();
    let share = format!("{}:/x,ro", folder.path().display());
    let output = run(&["-v", "--share", &share, "--", "true"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains(&format!("/x is {}, read-only", folder.path().display())), "{error}");
}
