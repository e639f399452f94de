//! `transom top` with a real daemon, as a script would run it.
//!
//! The daemon is `$TRANSOM_DAEMON`, or the `transomd` that was built.

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Well above the time of a start on a busy machine, so that only a daemon that hangs reaches it.
const START_MAX: Duration = Duration::from_secs(60);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// A daemon with an empty share and a metrics socket, until this is dropped.
struct Daemon {
    process: Child,
    dir: TempDir,
}

impl Daemon {
    /// Returns once the metrics can be read. Prints SKIPPED and returns `None` if there is no daemon to test with.
    fn start(test: &str) -> Option<Self> {
        let program = std::env::var_os("TRANSOM_DAEMON")
            .map_or_else(|| Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd"), PathBuf::from);
        if !program.is_file() {
            eprintln!("SKIPPED: {test}: no daemon {program:?}; build transomd");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("share")).unwrap();
        let process = Command::new(program)
            .current_dir(dir.path())
            .args(["--sandbox", "none", "--shared-dir", "share", "--socket-path", "socket"])
            .args(["--metrics-socket", "metrics"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut daemon = Self { process, dir };
        let limit = Instant::now() + START_MAX;
        while UnixStream::connect(daemon.metrics()).is_err() {
            assert_eq!(daemon.process.try_wait().unwrap(), None, "the daemon ended");
            assert!(Instant::now() < limit, "the daemon has no metrics socket after {START_MAX:?}");
            thread::sleep(BETWEEN_TRIES);
        }
        Some(daemon)
    }

    fn metrics(&self) -> PathBuf {
        self.dir.path().join("metrics")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn top(arguments: &[&str], sockets: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.arg("top").args(arguments).args(sockets).stdin(Stdio::null()).output().unwrap()
}

/// Returns the standard output of a run that must have succeeded.
#[track_caller]
fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the standard error of a run that must have failed and printed nothing else.
#[track_caller]
fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn once_prints_the_state_of_a_daemon_without_traffic() {
    let Some(daemon) = Daemon::start("once_prints_the_state_of_a_daemon_without_traffic") else { return };
    let text = printed(&top(&["--once"], &[&daemon.metrics()]));
    assert!(text.starts_with(&*daemon.metrics().to_string_lossy()), "{text}");
    assert!(text.contains("rates     0 requests/s   read 0.0 MiB/s   written 0.0 MiB/s   0 errors/s"), "{text}");
    assert!(text.contains("0 inodes   0 open files"), "{text}");
    assert!(text.ends_with("\nno requests yet\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn without_a_terminal_there_is_one_table_over_one_interval() {
    let Some(daemon) = Daemon::start("without_a_terminal_there_is_one_table_over_one_interval") else { return };
    let text = printed(&top(&["--interval", "0.1"], &[&daemon.metrics()]));
    assert_eq!(text.matches("(over ").count(), 1, "{text}");
}

#[test]
fn several_sockets_have_a_block_each() {
    let name = "several_sockets_have_a_block_each";
    let (Some(one), Some(other)) = (Daemon::start(name), Daemon::start(name)) else { return };
    let text = printed(&top(&["--once"], &[&one.metrics(), &other.metrics()]));
    assert_eq!(text.matches("no requests yet").count(), 2, "{text}");
    assert_eq!(text.matches("transomd ").count(), 2, "{text}");
}

#[test]
fn json_is_a_line_for_each_socket() {
    let Some(daemon) = Daemon::start("json_is_a_line_for_each_socket") else { return };
    let text = printed(&top(&["--json"], &[&daemon.metrics(), &daemon.metrics()]));
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["report"]["layout"], 1);
    assert_eq!(lines[0]["socket"], *daemon.metrics().to_string_lossy());
}

#[test]
fn a_path_without_a_socket_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let text = complaint(&top(&["--once"], &[&dir.path().join("nothing")]));
    assert!(text.contains("there is no socket") && text.contains("--metrics-socket"), "{text}");
}

#[test]
fn a_daemon_that_has_ended_is_told() {
    let Some(mut daemon) = Daemon::start("a_daemon_that_has_ended_is_told") else { return };
    daemon.process.kill().unwrap();
    daemon.process.wait().unwrap();
    let text = complaint(&top(&["--once"], &[&daemon.metrics()]));
    assert!(text.contains("nobody listens at"), "{text}");
}

#[test]
fn another_program_s_socket_is_told() {
    for answer in ["", "hello\n", "HTTP/1.0 404 Not Found\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n{\"layout\":2}"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Reads the whole request, because closing a socket with unread data would reset the connection.
            let mut request = [0; 22];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let text = complaint(&top(&["--once"], &[&path]));
        peer.join().unwrap();
        assert!(text.contains("is not the metrics socket of a transomd"), "{answer:?}: {text}");
    }
}
