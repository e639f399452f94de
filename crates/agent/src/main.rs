//! `transom-agent`: replays changes of the host in a Linux guest, so that its programs see them as local ones.
//!
//! For each share, [`channel`] receives what changed from transomd (`--events`), and [`replay`] makes the system calls
//! that would have caused it: the kernel corrects its caches and raises inotify events, and the daemon answers the
//! requests as done without touching the files. [`directories`] are kept open, [`shares`] finds the mounts; [`sys`] has
//! calls that have no safe wrapper.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod channel;
mod directories;
mod replay;
mod shares;
mod sys;

use std::{
    env, io,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use channel::Channel;
use rustix::io::Errno;

const USAGE: &str = "\
Replays changes of the host in this guest, so that programs see them at once and inotify reports them.

Usage: transom-agent [--until-eof] [MOUNT]...

Without MOUNT, every virtiofs mount of this guest whose daemon announces changes (transomd --events) is
served. Runs as root until it is stopped, or with --until-eof until its standard input ends. Prints \"ready\"
once all shares are served.";

/// Whether the threads are to end before their next exchange.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// How often a thread's exchange is woken until the thread has ended, and how long each time may take.
const WAKES_MAX: usize = 25;
const WAKE_WAIT: Duration = Duration::from_millis(20);

/// How long a thread waits before it asks again for something that the daemon was short of.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What a thread has to say.
enum News {
    /// A share is registered.
    Ready,
    /// A share's thread has ended.
    Ended(PathBuf, io::Error),
    /// Standard input has ended.
    End,
}

fn main() -> ExitCode {
    let (options, mounts): (Vec<PathBuf>, Vec<PathBuf>) = env::args_os()
        .skip(1)
        .map(PathBuf::from)
        .partition(|word| word.as_os_str().as_encoded_bytes().starts_with(b"-"));
    let are = |words: &[&str]| options.iter().all(|option| words.iter().any(|word| option == Path::new(word)));
    if !are(&["--until-eof"]) {
        println!("{USAGE}");
        return if are(&["--help", "-h"]) { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    match serve(mounts, !options.is_empty()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("transom-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves the mounts, each with a thread of its own: the daemon recognises a thread. Ends with the first error of a
/// mount that was named, or when no mount is left, or with standard input if `until_eof`.
fn serve(named: Vec<PathBuf>, until_eof: bool) -> io::Result<()> {
    let are_named = !named.is_empty();
    let mounts = if are_named { named } else { shares::mounted()? };
    let (news, arriving) = mpsc::channel();
    for mount in mounts.clone() {
        let news = news.clone();
        thread::Builder::new().spawn(move || {
            let ended = serve_one(&mount, || drop(news.send(News::Ready)));
            // The receiver lives as long as the process.
            let _ = news.send(News::Ended(mount, ended));
        })?;
    }
    if until_eof {
        thread::Builder::new().spawn(move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            let _ = news.send(News::End);
        })?;
    } else {
        drop(news);
    }
    let (mut waiting, mut left) = (mounts.len(), mounts.len());
    let mut is_ready = false;
    while left > 0 {
        if waiting == 0 && !is_ready {
            println!("ready");
            io::stdout().flush()?;
            is_ready = true;
        }
        match arriving.recv() {
            Ok(News::Ready) => waiting -= 1,
            Ok(News::Ended(mount, error)) => {
                let error = io::Error::new(error.kind(), format!("{}: {error}", mount.display()));
                if are_named {
                    return Err(error);
                }
                eprintln!("transom-agent: {error}");
                (waiting, left) = (waiting.saturating_sub(1), left - 1);
            }
            Ok(News::End) => {
                end(&mounts, &arriving, left);
                return Ok(());
            }
            Err(mpsc::RecvError) => break,
        }
    }
    Err(io::Error::other("no virtiofs mount whose daemon announces changes"))
}

/// Ends the threads of shares, `left` of which run. While one waits for its daemon, nothing could kill it.
fn end(mounts: &[PathBuf], arriving: &mpsc::Receiver<News>, mut left: usize) {
    IS_ENDING.store(true, Ordering::SeqCst);
    for _ in 0..WAKES_MAX {
        for mount in mounts {
            // Another share may be left.
            let _ = channel::wake(mount);
        }
        while left > 0 {
            match arriving.recv_timeout(WAKE_WAIT) {
                Ok(News::Ended(..)) => left -= 1,
                Ok(News::Ready | News::End) => {}
                Err(_) => break,
            }
        }
        if left == 0 {
            return;
        }
    }
}

/// Serves one mount; returns why that ended.
fn serve_one(mount: &Path, ready: impl FnOnce()) -> io::Error {
    let mut channel = match Channel::open(mount) {
        Ok(channel) => channel,
        Err(error) => return error,
    };
    let mut ready = Some(ready);
    loop {
        if IS_ENDING.load(Ordering::SeqCst) {
            return io::Error::from(io::ErrorKind::Interrupted);
        }
        match channel.exchange(replay::replay) {
            Ok(()) => {}
            Err(error) if is_shortage(&error) => {
                thread::sleep(AGAIN_AFTER);
                continue;
            }
            Err(error) => return error,
        }
        if let Some(ready) = ready.take() {
            ready();
        }
    }
}

/// Returns whether the daemon or the kernel is short of something that others give back: a thread that may wait, which
/// waits for locks take as well (ENOLCK), or memory.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::NOLCK, Errno::AGAIN, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}
