//! Decides whether changes of the host are replayed in a guest.

use std::{
    path::{Path, PathBuf},
    thread,
};

use clap::ValueEnum;
use rustix::fs::{CWD, Mode, OFlags, openat};
use transom_vm::{Error, Events, Result, Share};
use transom_watch::{Options, Strength, Watch};

/// When changes are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum When {
    Auto,
    Always,
    Never,
}

impl super::Run {
    /// Returns how changes of the host are replayed, if they are. With -v, says why they are not.
    ///
    /// `this` is this program's path. Errors: see [`Wanted::decide`].
    pub(super) fn events(&self, this: &Path, shares: &[Share]) -> Result<Option<Events>> {
        let when = if self.no_events { When::Never } else { self.events };
        let program = this.with_file_name("transom-agent");
        let shares: Vec<_> = shares
            .iter()
            .enumerate()
            .filter(|(number, _)| self.overlay(*number).is_none())
            .map(|(_, share)| share.clone())
            .collect();
        let decided = Wanted { when, program, daemon: self.daemon.as_deref() }.decide(&shares)?;
        if let (Err(reason), true) = (&decided, self.timing && when == When::Auto) {
            eprintln!("transom: no events: {reason}");
        }
        Ok(decided.ok())
    }
}

/// Why nothing can be replayed in shares that are mounted read-only.
const NOT_WRITABLE: &str = "every share is read-only or an overlay, and neither can have events";

/// What is asked for, and what there is.
struct Wanted<'a> {
    when: When,
    /// Where `transom-agent` should be.
    program: PathBuf,
    /// The daemon, if it is not this program's own.
    daemon: Option<&'a Path>,
}

impl Wanted<'_> {
    /// Returns how changes in `shares` are replayed, or why they are not.
    ///
    /// # Errors
    ///
    /// Something is missing, and [`When::Always`] demands it. What only the daemon can find missing is its error.
    fn decide(self, shares: &[Share]) -> Result<std::result::Result<Events, String>> {
        let has_program = self.program.is_file();
        let missing = || format!("{} is not installed", self.program.display());
        match self.when {
            When::Never => Ok(Err("they are switched off".into())),
            When::Always if !has_program => Err(Error::Usage(format!("--events: {}", missing()))),
            When::Always if shares.iter().all(|share| share.is_read_only) => Err(Error::Usage(format!(
                "--events: {NOT_WRITABLE}; leave the option out, or share something writable"
            ))),
            When::Always => Ok(Ok(Events { program: self.program, are_required: true })),
            When::Auto if !has_program => Ok(Err(missing())),
            When::Auto => {
                Ok(self.unobservable(shares).map_or(Ok(Events { program: self.program, are_required: false }), Err))
            }
        }
    }

    /// Returns why the shares that the guest can change are not observed, if that is known.
    fn unobservable(&self, shares: &[Share]) -> Option<String> {
        if let Some(daemon) = self.daemon {
            return Some(format!("{} may not be transomd; --events assumes that it is", daemon.display()));
        }
        let mut writable = shares.iter().filter(|share| !share.is_read_only).peekable();
        if writable.peek().is_none() {
            return Some(NOT_WRITABLE.into());
        }
        writable.find_map(|share| why_not(&share.host))
    }
}

/// Returns why changes in the file system of `path` cannot be observed.
fn why_not(path: &Path) -> Option<String> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty()).map_err(|errno| errno.to_string());
    let options = Options { weakest: Strength::Directories, ..Options::default() };
    match opened.and_then(|root| Watch::open(root, &options).map_err(|error| error.to_string())) {
        Err(error) => Some(format!("{}: {error}", path.display())),
        Ok(watch) => {
            // The kernel takes its time to end an observation; nobody waits for that.
            thread::spawn(move || drop(watch));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(
        when: When,
        program: &Path,
        daemon: Option<&Path>,
        shares: &[Share],
    ) -> Result<std::result::Result<Events, String>> {
        Wanted { when, program: program.to_owned(), daemon }.decide(shares)
    }

    #[test]
    fn what_is_missing_is_an_error_only_if_events_are_demanded() {
        let dir = tempfile::tempdir().unwrap();
        let (absent, present) = (dir.path().join("absent"), dir.path().join("present"));
        std::fs::write(&present, "").unwrap();
        let shares = [Share { host: dir.path().to_owned(), ..Share::default() }];
        let read_only = [Share { is_read_only: true, ..shares[0].clone() }];

        let error = decide(When::Always, &absent, None, &shares).unwrap_err().to_string();
        assert!(error.contains("absent is not installed"), "{error}");
        assert!(decide(When::Always, &present, None, &shares).unwrap().unwrap().are_required);
        let error = decide(When::Always, &present, None, &read_only).unwrap_err().to_string();
        assert!(error.contains("every share is read-only or an overlay"), "{error}");
        assert!(decide(When::Auto, &absent, None, &shares).unwrap().unwrap_err().contains("absent is not installed"));
        let other = decide(When::Auto, &present, Some(Path::new("/virtiofsd")), &shares).unwrap().unwrap_err();
        assert!(other.contains("/virtiofsd"), "{other}");
        let reason = decide(When::Auto, &present, None, &read_only).unwrap().unwrap_err();
        assert!(reason.contains("every share is read-only or an overlay"), "{reason}");
        let gone = [Share { host: dir.path().join("gone"), ..Share::default() }];
        assert!(decide(When::Auto, &present, None, &gone).unwrap().is_err());
        assert!(decide(When::Never, &present, None, &shares).unwrap().is_err());
    }
}
