//! Mounting in the background: re-executes this program in a new session, which reports its outcome through a pipe.

use std::{
    fs::OpenOptions,
    io::{self, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::serve::{Request, serve, warnings};

/// Environment variable that marks the background process, whose standard output is the pipe.
const BACKGROUND_VARIABLE: &str = "TRANSOM_MOUNT_BACKGROUND";
/// The first bytes on the pipe once the share can be used; warnings follow, one to a line. Any other text is an error
/// message.
const READY: &[u8] = b"\n";

/// Mounts the share from another process, and returns once it can be used.
pub(super) fn run(request: &Request) -> Result<()> {
    if std::env::var_os(BACKGROUND_VARIABLE).is_some() { serve_in_background(request) } else { start() }
}

/// Starts this program again with the same arguments, and waits for its report.
fn start() -> Result<()> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args(arguments).env(BACKGROUND_VARIABLE, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // Signals that the terminal sends to this process's group must not reach the background process.
    command.process_group(0);
    let mut child = command.spawn().context("cannot start the background process")?;
    let mut report = Vec::new();
    child.stdout.take().context("the background process has no pipe")?.read_to_end(&mut report)?;
    let text = String::from_utf8_lossy(&report).trim().to_owned();
    if report.starts_with(READY) {
        text.lines().for_each(|warning| eprintln!("transom: {warning}"));
        return Ok(());
    }
    anyhow::bail!(if text.is_empty() {
        "the background process ended without reporting an error".to_owned()
    } else {
        text
    })
}

fn serve_in_background(request: &Request) -> Result<()> {
    // Fails if this process already leads its group, in which case the terminal's signals do not reach it either.
    let _ = rustix::process::setsid();
    let outcome = serve(request, |mount| {
        // Only now, because the paths may be relative. If it fails, the only effect is a busy directory.
        let _ = std::env::set_current_dir("/");
        send(&[READY, warnings(request, mount).join("\n").as_bytes()].concat());
    });
    if let Err(error) = &outcome {
        // After READY was sent, nobody reads this.
        send(format!("{error:#}").as_bytes());
    }
    outcome
}

/// Writes `text` to the pipe, and closes it.
fn send(text: &[u8]) {
    let mut pipe = io::stdout();
    // The parent may have exited; the mount continues.
    let _ = pipe.write_all(text).and_then(|()| pipe.flush());
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}
