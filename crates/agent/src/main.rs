//! `transom-agent`: replays changes of the host in a Linux guest, so that its programs see them as local ones.
//!
//! For each share, [`channel`] receives what changed from transomd (`--events`), and [`replay`] makes the system calls
//! that would have caused it: the kernel corrects its caches and raises inotify events, and the daemon answers the
//! requests as done without touching the files. [`directories`] are kept open, [`shares`] finds the mounts, [`serve`]
//! gives each a thread; [`sys`] has calls that have no safe wrapper.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod channel;
mod directories;
mod replay;
mod serve;
mod shares;
mod sys;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

const USAGE: &str = "\
Replays changes of the host in this guest, so that programs see them at once and inotify reports them.

Usage: transom-agent [--until-eof] [MOUNT]...

Without MOUNT, every virtiofs mount of this guest whose daemon announces changes (transomd --events) is
served, also those that are mounted later. Runs as root until it is stopped, or with --until-eof until its
standard input ends. Prints \"ready\" once all shares are served that are mounted.";

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
    match serve::serve(&mounts, !options.is_empty()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("transom-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
