//! Overlays on the command line: a guest changes everything, and the host decides what stays.

mod needs;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use needs::is_skipped;
use tempfile::TempDir;

/// Well above the time of a boot on a busy machine, so that only a run that hangs reaches it.
const LIMIT_S: &str = "400";

/// A directory to share, and one for the state.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::create_dir_all(folder.path().join("d/sub")).unwrap();
        fs::write(folder.path().join("d/a"), "one\n").unwrap();
        fs::write(folder.path().join("d/b"), "two\n").unwrap();
        fs::write(folder.path().join("d/sub/c"), "three\n").unwrap();
        Self { folder }
    }

    fn directory(&self) -> String {
        self.folder.path().join("d").to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join("d").join(name)).unwrap()
    }

    fn transom(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(arguments).env("XDG_STATE_HOME", self.folder.path().join("state"));
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs `script` in a guest with an overlay, and returns what it and `transom` wrote.
    #[track_caller]
    fn guest(&self, arguments: &[&str], script: &str) -> String {
        let share = format!("{}:/share,overlay", self.directory());
        let run = ["run", "--timeout", LIMIT_S, "--share", &share];
        let output = self.transom(&[&run, arguments, &["--", "sh", "-c", script]].concat());
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{text}");
        text
    }

    /// Runs another command on the directory, which must succeed.
    #[track_caller]
    fn command(&self, arguments: &[&str]) -> String {
        let output = self.transom(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn a_guest_changes_everything_and_the_host_takes_what_it_wants() {
    if is_skipped("a_guest_changes_everything") {
        return;
    }
    let fixture = Fixture::new();
    let directory = fixture.directory();
    let said = fixture.guest(&[], "echo more >> a; rm b; rm -r sub; mkdir sub; echo new > sub/d; cat a");
    let steps = format!("transom diff {directory}, transom commit {directory}, transom discard {directory}");
    assert!(said.starts_with("one\nmore\n") && said.contains("4 files changed in"), "{said}");
    assert!(said.contains(&steps), "{said}");
    assert_eq!(
        (fixture.read("a"), fixture.read("b"), fixture.read("sub/c")),
        ("one\n".into(), "two\n".into(), "three\n".into())
    );

    let said = fixture.guest(&["--json=/dev/stdout"], "cat a; ls sub; touch e");
    assert!(said.contains("continues with 4 files of earlier runs"), "{said}");
    assert!(said.starts_with("one\nmore\nd\n") && said.contains(r#""change":"added""#), "{said}");

    let expected = "changed  a (4 B to 9 B)\nremoved  b\nadded    e (0 B)\nremoved  sub/c\nadded    sub/d (4 B)\n\
                    5 files, 13 B to write\n";
    assert_eq!(fixture.command(&["diff", &directory]), expected);
    assert!(fixture.command(&["diff", "--patch", &directory]).contains("+more\n"));
    fixture.command(&["commit", &directory, "a", "sub"]);
    fixture.command(&["discard", &directory]);
    assert_eq!(
        (fixture.read("a"), fixture.read("b"), fixture.read("sub/d")),
        ("one\nmore\n".into(), "two\n".into(), "new\n".into())
    );
    assert!(!fixture.folder.path().join("d/sub/c").exists() && !fixture.folder.path().join("d/e").exists());
}

#[test]
fn conflicts_are_told_and_success_commits_the_rest() {
    if is_skipped("conflicts_are_told") {
        return;
    }
    let fixture = Fixture::new();
    let directory = fixture.directory();
    fixture.guest(&[], "echo guest > a");
    fs::write(fixture.folder.path().join("d/a"), "host, and longer\n").unwrap();
    let refused = fixture.transom(&["commit", &directory]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("a: changed on the host"), "{error}");
    assert!(error.contains(&format!("transom commit --force {directory} PATH")), "{error}");
    assert_eq!(fixture.read("a"), "host, and longer\n");
    fixture.command(&["discard", &directory]);
    let said = fixture.guest(&["--commit-on-success"], "cat a; echo guest > a");
    assert!(said.starts_with("host, and longer\n") && said.contains("1 file committed"), "{said}");
    assert_eq!(fixture.read("a"), "guest\n");
}

#[test]
fn the_command_runs_as_a_user_in_a_directory_with_variables() {
    if is_skipped("the_command_runs_as_a_user") {
        return;
    }
    let fixture = Fixture::new();
    fs::set_permissions(fixture.folder.path().join("d"), fs::Permissions::from_mode(0o777)).unwrap();
    let arguments = ["--user", "1000:7", "--workdir", "/tmp/made", "--env", "XDG_STATE_HOME", "-e", "X=y"];
    let said = fixture.guest(&arguments, "id -u; id -g; pwd; echo $X $XDG_STATE_HOME; hostname; echo > /share/mine");
    let expected = format!("1000\n7\n/tmp/made\ny {}\ntransom\n", fixture.folder.path().join("state").display());
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn what_cannot_be_an_overlay_is_refused_with_the_reason() {
    let fixture = Fixture::new();
    let refused = |arguments: &[&str], reason: &str| {
        let output = fixture.transom(&[arguments, &["--", "true"]].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(125) && error.contains(reason), "{error}");
    };
    refused(&["run", "--root", "/,overlay"], "stays in its memory anyway");
    let outer = format!("{},overlay", fixture.folder.path().display());
    refused(&["run", "--root", "/", "--share", &outer], "set XDG_STATE_HOME");
    let share = format!("{},overlay", fixture.directory());
    refused(&["run", "--root", "/", "--coherence-group", "g", "--share", &share], "exclude each other");
    refused(&["run", "--root", "/", "--env", "TRANSOM_NOT_SET"], "it is not set here");
}

#[test]
fn without_changes_there_is_nothing_to_do() {
    let fixture = Fixture::new();
    let output = fixture.transom(&["diff", &fixture.directory()]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("no changes in an overlay"));
    assert!(fixture.command(&["diff", "--json", &fixture.directory()]).contains(r#""changes":[]"#));
}

/// Returns the names of the cases that failed, and how many passed.
fn results(output: &[u8]) -> (BTreeSet<String>, usize) {
    let text = String::from_utf8_lossy(output);
    let named = |word: &'static str| {
        let lines = text.lines().filter_map(move |line| line.strip_prefix(word)?.split_whitespace().next());
        lines.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    (named("FAIL "), named("PASS ").len())
}

/// What fails on an overlay fails on any other share too, or on the kernel's overlayfs without any guest.
#[test]
#[ignore = "minutes: the whole list of file-system cases, three times"]
fn the_list_of_cases_passes_on_an_overlay() {
    let program = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transom-cases");
    if is_skipped("the_list_of_cases") {
        return;
    }
    if !program.is_file() || !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: the_list_of_cases_passes_on_an_overlay: needs root, and {program:?}");
    }
    let fixture = Fixture::new();
    let path = |name: &str| fixture.folder.path().join(name).to_str().unwrap().to_owned();
    for name in ["overlay", "plain", "tools", "lower", "upper", "work", "merged"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::copy(&program, path("tools/transom-cases")).unwrap();
    let tools = format!("{}:/tools,ro", path("tools"));
    let in_guest = |share: &str| {
        let run = ["run", "--timeout", "1500", "--no-events", "--share", share, "--share", &tools, "--"];
        let cases = ["/tools/transom-cases", "--limit", "300", "--dir", "/share"];
        results(&fixture.transom(&[&run[..], &cases[..]].concat()).stdout)
    };
    let (on_overlay, passed) = in_guest(&format!("{}:/share,overlay", path("overlay")));
    let (on_plain, _) = in_guest(&format!("{}:/share", path("plain")));
    let script = format!(
        "cd {} && mount -t overlay o -o userxattr,xino=on,lowerdir=lower,upperdir=upper,workdir=work merged && \
         tools/transom-cases --dir merged",
        fixture.folder.path().display()
    );
    let native = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    let (on_overlayfs, _) = results(&native.stdout);
    let unexpected: Vec<_> =
        on_overlay.iter().filter(|name| !on_plain.contains(*name) && !on_overlayfs.contains(*name)).collect();
    assert!(unexpected.is_empty() && passed > 250, "{passed} passed, {unexpected:?}");
    assert!(fs::read_dir(path("overlay")).unwrap().next().is_none());
}

#[test]
fn the_python_package_works() {
    if is_skipped("the_python_package_works") {
        return;
    }
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/tests/test_sandbox.py");
    let mut command = Command::new("python3");
    command.arg(tests).env("TRANSOM", env!("CARGO_BIN_EXE_transom")).env("XDG_STATE_HOME", folder.path());
    match command.env("PYTHONDONTWRITEBYTECODE", "1").output() {
        Err(error) => eprintln!("SKIPPED: the_python_package_works: no python3: {error}"),
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
}
