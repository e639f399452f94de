//! `transom run --root IMAGE` before its guest starts: how signals end each stage, and what messages show of an image.

#[expect(dead_code, reason = "other tests use the rest")]
mod within;

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// A directory with an image, and a cache of its own.
struct Fixture(TempDir);

/// A run, and the lines that it says. It is killed when this is dropped.
struct Running {
    child: Child,
    said: Receiver<String>,
}

impl Fixture {
    fn new() -> Option<Self> {
        if !Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd").is_file() {
            eprintln!("SKIPPED: transomd is not built");
            return None;
        }
        let fixture = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(fixture.store()).unwrap();
        fs::create_dir(fixture.path("root")).unwrap();
        fs::write(fixture.path("root/file"), "content").unwrap();
        fixture.tar("image.tar", "root");
        Some(fixture)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.path("cache/images")
    }

    fn tar(&self, archive: &str, directory: &str) {
        let tar = Command::new("tar").current_dir(self.0.path()).args(["-cf", archive, "-C", directory, "."]).status();
        assert!(tar.unwrap().success());
    }

    fn run(&self, options: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.current_dir(self.0.path()).arg("run").args(options).args(["--root", "image.tar", "--", "true"]);
        command.env("TRANSOM_CACHE", self.path("cache")).env("XDG_RUNTIME_DIR", self.0.path());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let (sender, said) = channel();
        thread::spawn(move || lines.for_each(|line| drop(sender.send(line))));
        Running { child, said }
    }
}

impl Running {
    /// Returns the next line, or `None` once every process that could say something has ended.
    #[track_caller]
    fn line(&self) -> Option<String> {
        match self.said.recv_timeout(within::LIMIT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing more is said within {:?}", within::LIMIT),
        }
    }

    /// Waits for a line with `text`.
    #[track_caller]
    fn says(&self, text: &str) {
        let mut before = Vec::new();
        loop {
            let line = self.line().unwrap_or_else(|| panic!("it has ended without {text:?}: {before:#?}"));
            if line.contains(text) {
                return;
            }
            before.push(line);
        }
    }

    /// Returns the lines that are left, once nothing more is said.
    #[track_caller]
    fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.line()).collect()
    }

    #[track_caller]
    fn end(&mut self) -> ExitStatus {
        within::end(&mut self.child, || format!("{:#?}", self.said.try_iter().collect::<Vec<_>>()))
    }

    /// Sends a signal as Ctrl-C does, and returns how the run ends.
    #[track_caller]
    fn interrupt(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lock(path: &Path) -> File {
    let lock = File::create(path).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    lock
}

#[test]
fn a_signal_ends_the_wait_for_another_process_and_says_what_is_left() {
    let Some(fixture) = Fixture::new() else { return };
    let digest = Sha256::digest(fs::read(fixture.path("image.tar")).unwrap());
    let id: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let squashed = if rustix::process::geteuid().is_root() { "" } else { "-squashed" };
    let path = fixture.store().join(format!("{id}{squashed}.lock"));
    let _held = lock(&path);
    let mut running = fixture.run(&[]);
    running.says(&format!(
        "waiting for another run, which unpacks or removes the same image and holds {}",
        path.display()
    ));
    assert_eq!(running.interrupt().code(), Some(130));
    running.says("transom: unpacking was stopped; nothing of the image is left");
    running.says("stopped by signal 2");
}

#[test]
fn after_the_image_signals_end_the_run_as_before_it() {
    let Some(fixture) = Fixture::new() else { return };
    // The next stage fetches a kernel.
    let _held = lock(&fixture.path("cache/apt.lock"));
    let mut running = fixture.run(&[]);
    running.says("unpacking image.tar");
    running.says("waiting for another run");
    assert_eq!(running.interrupt().signal(), Some(2));
}

#[test]
fn a_signal_ends_the_process_that_would_keep_the_machine_too() {
    let Some(fixture) = Fixture::new() else { return };
    let _held = lock(&fixture.path("cache/apt.lock"));
    let mut running = fixture.run(&["--keep", "m"]);
    running.says("unpacking image.tar");
    running.says("waiting for another run");
    assert_eq!(running.interrupt().code(), Some(130));
    // It had the same standard error.
    running.rest();
}

#[test]
fn texts_of_an_image_do_not_control_the_terminal() {
    let Some(fixture) = Fixture::new() else { return };
    let evil = "\u{1b}]0;owned\u{7}\r\ntransom: all is well\u{202e}";
    let config = json!({ "architecture": evil, "os": evil, "rootfs": { "diff_ids": [] } });
    fs::create_dir(fixture.path("docker")).unwrap();
    fs::write(fixture.path("docker/config.json"), config.to_string()).unwrap();
    let image = |tag: &str| json!({ "Config": "config.json", "RepoTags": [tag], "Layers": [] });
    let evil_config = json!([{ "Config": evil, "RepoTags": [], "Layers": [] }]);
    for (manifest, text) in [
        (json!([image("one"), image(evil)]), "several images"),
        (json!([image("one")]), "the image is for"),
        (evil_config, "no file"),
        (json!(evil), "manifest.json"),
    ] {
        fs::write(fixture.path("docker/manifest.json"), manifest.to_string()).unwrap();
        fixture.tar("image.tar", "docker");
        let mut running = fixture.run(&[]);
        assert_eq!(running.end().code(), Some(125));
        let said = running.rest();
        assert!(said.len() == 1 && said[0].contains(text), "{said:?}");
        assert!(!said[0].contains(|letter: char| letter.is_control() || letter == '\u{202e}'), "{said:?}");
    }
}
