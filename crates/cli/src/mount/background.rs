//! Into the background: the same program again, in a session of its own, and a pipe by which it says how it went.

use std::{
    fs::OpenOptions,
    io::{self, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::serve::{Request, serve, warnings};

/// Set for the process in the background, whose standard output is the pipe.
const IS_BEHIND: &str = "TRANSOM_MOUNT_IS_BEHIND";
/// What the process says first when the share can be used; lines with warnings follow. Anything else is why it cannot be used.
const READY: &[u8] = b"\n";

/// Mounts, and returns once the share can be used; who serves is another process.
pub(super) fn run(request: &Request) -> Result<()> {
    if std::env::var_os(IS_BEHIND).is_some() { serve_behind(request) } else { start() }
}

/// Starts this program with the same arguments, and waits for its word.
fn start() -> Result<()> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args(arguments).env(IS_BEHIND, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // What the terminal sends to this process's group is not for the one that stays.
    command.process_group(0);
    let mut child = command.spawn().context("cannot start the process in the background")?;
    let mut word = Vec::new();
    child.stdout.take().context("a pipe")?.read_to_end(&mut word)?;
    let text = String::from_utf8_lossy(&word).trim().to_owned();
    if word.starts_with(READY) {
        text.lines().for_each(|warning| eprintln!("transom: {warning}"));
        return Ok(());
    }
    anyhow::bail!(if text.is_empty() {
        "the process in the background has ended without a word".to_owned()
    } else {
        text
    })
}

fn serve_behind(request: &Request) -> Result<()> {
    // It fails where this process leads its group, and then the group is its own all the same.
    let _ = rustix::process::setsid();
    let outcome = serve(request, |mount| {
        // Not before: paths may be relative. Where it fails, this process keeps a directory busy, and no more.
        let _ = std::env::set_current_dir("/");
        tell(&[READY, warnings(request, mount).join("\n").as_bytes()].concat());
    });
    if let Err(error) = &outcome {
        // Nobody reads this any more where the mount has worked.
        tell(format!("{error:#}").as_bytes());
    }
    outcome
}

/// Writes to the pipe, and closes it.
fn tell(word: &[u8]) {
    let mut pipe = io::stdout();
    // Whoever has started us may be gone; the mount stays.
    let _ = pipe.write_all(word).and_then(|()| pipe.flush());
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}
