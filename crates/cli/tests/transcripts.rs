//! The sessions of `docs/sandbox.md`: each line that begins with `$` is given to a shell, and what it prints is
//! compared with the lines below it, in which `...` stands for anything.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

const DOCUMENT: &str = include_str!("../../../docs/sandbox.md");
/// Printed by the shell before each command's output.
const MARK: &str = "==transcript==";

/// A command, and the lines that it prints.
struct Step {
    command: String,
    expected: Vec<String>,
}

/// The port in the document, in place of which the test uses one that is free.
const PORT: &str = "8642";
/// Far more than a session takes, in seconds: one that waits for something that never comes fails instead of hanging.
const PATIENCE_S: &str = "600";

/// Returns the session below the heading `title`.
fn session(title: &str) -> Vec<Step> {
    let section = DOCUMENT.split("\n## ").find_map(|section| section.strip_prefix(title)).expect("a section");
    let block = section.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step { command: command.replace(PORT, &port), expected: Vec::new() }),
            (None, Some(step)) => step.expected.push(line.replace(PORT, &port)),
            (None, None) => panic!("{title} begins with output"),
        }
    }
    steps
}

/// Returns whether a line is as expected.
fn is_like(line: &str, expected: &str) -> bool {
    let mut parts = expected.split("...");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Returns why guests cannot run here.
fn missing(programs: &[&str]) -> Option<String> {
    let beside = |name: &str| Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name(name);
    let built: [PathBuf; 2] = ["transomd", "transom-agent"].map(beside);
    if let Some(absent) = built.iter().find(|program| !program.is_file()) {
        return Some(format!("{} is not built", absent.display()));
    }
    let is_there = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    };
    programs
        .iter()
        .chain(&["qemu-system-x86_64", "bash"])
        .find(|program| !is_there(program))
        .map(|program| format!("no {program} in PATH"))
}

/// Runs the session below the heading `title`. Returns its home, unless it cannot run.
#[track_caller]
fn run(title: &str, programs: &[&str]) -> Option<TempDir> {
    if let Some(why) = missing(programs) {
        eprintln!("SKIPPED: {title}: {why}");
        return None;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let begin = home.path().join("session");
    fs::create_dir(&begin).unwrap();
    let steps = session(title);
    let mut script = String::new();
    for step in &steps {
        script += &format!("echo '{MARK}'\n{}\n", step.command);
    }
    let output = shell(&home, &begin, &script);
    let found: Vec<&str> = output.split(&format!("{MARK}\n")).skip(1).collect();
    assert_eq!(found.len(), steps.len(), "{output}");
    for (step, found) in steps.iter().zip(found) {
        let lines: Vec<_> = found.lines().collect();
        let is_same = lines.len() == step.expected.len()
            && lines.iter().zip(&step.expected).all(|(line, expected)| is_like(line, expected));
        assert!(is_same, "$ {}\nprints\n{found}\ninstead of\n{}\n", step.command, step.expected.join("\n"));
    }
    Some(home)
}

/// Runs a script as a user would in a terminal, and returns what it prints.
fn shell(home: &TempDir, begin: &Path, script: &str) -> String {
    let beside = Path::new(env!("CARGO_BIN_EXE_transom")).parent().unwrap();
    let path = std::env::join_paths(
        [beside.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut command = Command::new("timeout");
    command.args([PATIENCE_S, "bash"]);
    // Both outputs in one, as on a terminal; machines that are left end with the session.
    let file = home.path().join("script");
    fs::write(&file, format!("exec 2>&1\n{script}\ntransom stop --all --force 2>/dev/null\n")).unwrap();
    command.arg(file);
    command.current_dir(begin).env("PATH", path.unwrap()).env("XDG_RUNTIME_DIR", home.path());
    command.env("XDG_STATE_HOME", home.path().join("state")).env("TRANSOM_CACHE", cache(home));
    String::from_utf8(command.stdin(Stdio::null()).output().unwrap().stdout).unwrap()
}

/// Returns a cache with the kernels and programs of the usual one, and images of its own, which end with `home`.
fn cache(home: &TempDir) -> PathBuf {
    let usual = std::env::var_os("TRANSOM_CACHE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cache"),
        |named| std::path::absolute(named).unwrap(),
    );
    // What is fetched is kept, and fetched by one at a time.
    for directory in ["apt", "machines", "packages"] {
        fs::create_dir_all(usual.join(directory)).unwrap();
    }
    fs::OpenOptions::new().create(true).append(true).open(usual.join("apt.lock")).unwrap();
    let own = home.path().join("cache");
    fs::create_dir_all(own.join("images")).unwrap();
    for entry in fs::read_dir(&usual).unwrap().map(Result::unwrap) {
        if entry.file_name() != "images" {
            symlink(entry.path(), own.join(entry.file_name())).unwrap();
        }
    }
    own
}

#[test]
fn look_at_changes_before_they_count() {
    run("Look at changes before they count", &[]);
}

#[test]
fn edit_here_see_it_there() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let options =
        transom_watch::Options { weakest: transom_watch::Strength::Directories, ..transom_watch::Options::default() };
    if let Err(error) = transom_watch::Watch::open(fs::File::open(folder.path()).unwrap(), &options) {
        return eprintln!("SKIPPED: edit_here_see_it_there: {error}");
    }
    run("Edit here, see it there", &[]);
}

#[test]
fn reach_one_host_and_no_other() {
    run("Reach one host, and no other", &["python3", "curl"]);
}

#[test]
fn hide_a_secret_and_limit_the_disk() {
    run("Hide a secret, and limit the disk", &[]);
}

#[test]
fn keep_a_machine() {
    run("Keep a machine", &[]);
}

#[test]
fn start_from_an_image() {
    let Some(home) = run("Start from an image", &["tar"]) else { return };
    // And in no cache that stays.
    let images = fs::read_dir(home.path().join("cache/images")).unwrap();
    assert_eq!(images.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(), 1);
}

#[test]
fn every_session_of_the_document_is_run() {
    let this = include_str!("transcripts.rs");
    for title in DOCUMENT.split("\n## ").skip(1).map(|section| section.lines().next().unwrap()) {
        assert!(this.contains(&format!("run(\"{title}\"")), "{title}");
        assert!(!session(title).is_empty());
    }
}

#[test]
fn dots_stand_for_anything() {
    assert!(is_like("a b c", "a ... c") && is_like("abc", "...") && is_like("abc", "abc"));
    assert!(!is_like("a b d", "a ... c") && !is_like("abcd", "abc") && is_like("xaybz", "...a...b..."));
}
