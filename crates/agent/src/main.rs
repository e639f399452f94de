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
    sync::mpsc,
    thread,
};

use channel::Channel;

const USAGE: &str = "\
Replays changes of the host in this guest, so that programs see them at once and inotify reports them.

Usage: transom-agent [MOUNT]...

Without MOUNT, every virtiofs mount of this guest whose daemon announces changes (transomd --events) is
served. Runs as root until it is stopped. Prints \"ready\" once all shares are served.";

/// The end of one share's thread, or that it is registered.
enum News {
    Ready,
    Ended(PathBuf, io::Error),
}

fn main() -> ExitCode {
    let mounts: Vec<PathBuf> = match env::args_os().skip(1).map(PathBuf::from).collect::<Vec<_>>() {
        words if words.iter().any(|word| word.as_os_str().as_encoded_bytes().starts_with(b"-")) => {
            println!("{USAGE}");
            let is_help = words.iter().all(|word| word == Path::new("--help") || word == Path::new("-h"));
            return if is_help { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
        words => words,
    };
    match serve(mounts) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("transom-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves the mounts, each with a thread of its own: the daemon recognises a thread. Ends with the first error of a
/// mount that was named, or when no mount is left.
fn serve(named: Vec<PathBuf>) -> io::Result<std::convert::Infallible> {
    let are_named = !named.is_empty();
    let mounts = if are_named { named } else { shares::mounted()? };
    let (news, arriving) = mpsc::channel();
    let (mut waiting, mut left) = (mounts.len(), mounts.len());
    for mount in mounts {
        let news = news.clone();
        thread::Builder::new().spawn(move || {
            let ended = serve_one(&mount, || drop(news.send(News::Ready)));
            // The receiver lives as long as the process.
            let _ = news.send(News::Ended(mount, ended));
        })?;
    }
    drop(news);
    loop {
        if waiting == 0 && left > 0 {
            println!("ready");
            io::stdout().flush()?;
            waiting = usize::MAX;
        }
        match arriving.recv() {
            Ok(News::Ready) => waiting -= 1,
            Ok(News::Ended(mount, error)) => {
                let error = io::Error::new(error.kind(), format!("{}: {error}", mount.display()));
                if are_named {
                    return Err(error);
                }
                eprintln!("transom-agent: {error}");
                (waiting, left) = (if waiting == usize::MAX { waiting } else { waiting - 1 }, left - 1);
            }
            Err(mpsc::RecvError) => return Err(io::Error::other("no virtiofs mount whose daemon announces changes")),
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
        if let Err(error) = channel.exchange(replay::replay) {
            return error;
        }
        if let Some(ready) = ready.take() {
            ready();
        }
    }
}
