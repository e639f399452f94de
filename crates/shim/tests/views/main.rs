//! Views of files on this machine's file systems. Needs CAP_SYS_ADMIN and a kernel with FUSE_PASSTHROUGH.
//!
//! `places` finds directories on several file systems, `contents` are the cases that run in each of them, `process`
//! those about the process that makes the views, `guard` those about files that others must not make shorter, with
//! `attempts` at it.

#![expect(clippy::unwrap_used, reason = "tests")]

mod attempts;
mod contents;
mod guard;
mod mapped;
mod namespace;
mod places;
mod process;

use std::{env, path::Path, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Failed, Trial};
use transom_shim::{Shim, StartError, Step};

/// A case by its name.
type Case = (&'static str, fn(&Shim) -> anyhow::Result<()>);
/// A case by its name, for any directory.
type PlaceCase = (&'static str, fn(&Shim, &Path) -> anyhow::Result<()>);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if let [_, word, scene] = &arguments[..]
        && word == process::AS_USER
    {
        return process::act(scene);
    }
    if let [_, word, path] = &arguments[..]
        && word == guard::AS_OTHER
    {
        return guard::act(path.as_ref());
    }
    // Both before the first thread: a mount namespace of our own, and the process.
    let places = places::all();
    let shim: &'static Shim = match Shim::start() {
        Ok(shim) => Box::leak(Box::new(shim)),
        Err(error @ StartError::Step { step, .. }) if step != Step::Process && step != Step::Isolation => {
            println!("SKIPPED: views of files: {error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            println!("FAILED: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials = Vec::new();
    for place in places {
        let place = Arc::new(place);
        for &(case, run) in guard::cases(place.name) {
            let (name, is_missing) = (format!("guard::{}::{case}", place.name), place.directory().is_none());
            let place = place.clone();
            let run = move || place.directory().map_or(Ok(()), |directory| finish(run(shim, directory)));
            trials.push(Trial::test(name, run).with_ignored_flag(is_missing));
        }
        for &(case, run) in contents::CASES {
            let (name, is_missing) = (format!("{}::{case}", place.name), place.directory().is_none());
            let place = place.clone();
            let run = move || place.directory().map_or(Ok(()), |directory| finish(run(shim, directory)));
            trials.push(Trial::test(name, run).with_ignored_flag(is_missing));
        }
    }
    for &(case, run) in process::CASES {
        trials.push(Trial::test(format!("process::{case}"), move || finish(run(shim))));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn finish(result: anyhow::Result<()>) -> Result<(), Failed> {
    result.map_err(|error| format!("{error:#}").into())
}
