//! `--root IMAGE`: an image of a container as the guest's root, and what it says about its programs.

use std::{cell::Cell, ffi::OsString, path::Path};

use transom_image::{Store, Unpacked, Watch, is_image};
use transom_vm::{
    CacheMode, Error, Result, Root, ShareArg, User,
    packages::{Cache, OnStderr, Report as _},
};

use super::{
    signals::Signals,
    values::{home_of, parse_user},
};
use crate::tell::{one_line, path_in_line};

/// An image that is the guest's root, which stays while this exists.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) unpacked: Unpacked,
    signals: Signals,
}

impl Image {
    /// Leaves signals to the guest, which is about to start.
    pub(super) fn without_signals(self) -> Unpacked {
        drop(self.signals);
        self.unpacked
    }
}

/// Opens the image that --root names, if it is one, and unpacks it unless it was before.
///
/// # Errors
/// Returns an error if it cannot be used, and [`Error::Interrupted`] if a signal has come meanwhile.
pub(super) fn open(root: &ShareArg, cache: &Cache, report: &OnStderr) -> Result<Option<Image>> {
    if !is_image(&root.host) {
        return match (&root.image, root.host.exists()) {
            (Some(name), true) => Err(Error::Usage(format!(
                "--root {}: image={name} chooses an image of several, and this is a directory that is a root itself",
                root.host.display()
            ))),
            _ => Ok(None),
        };
    }
    let signals = Signals::note()?;
    let watch = Progress { report, name: path_in_line(&root.host), len_bytes: Cell::new(0), signals: &signals };
    let opened = Store::at(cache.dir().join("images")).open(&root.host, root.image.as_deref(), &watch);
    report.clear();
    let unpacked = opened.map_err(|error| {
        let text = one_line(&error.to_string());
        if !signals.has_come() {
            return Error::Usage(format!("--root: {text}"));
        }
        let what_is_left =
            if let transom_image::Error::Cancelled = error { "; nothing of the image is left" } else { "" };
        report.say(&format!("transom: {text}{what_is_left}"));
        signals.let_end().err().unwrap_or(Error::Usage(text))
    })?;
    signals.let_end()?;
    if unpacked.devices > 0 {
        report.say(&format!("transom: {} device nodes of the image are left out", unpacked.devices));
    }
    Ok(Some(Image { unpacked, signals }))
}

/// Returns the root that an image is. Nobody changes it, so that the guest may keep what it has read.
pub(super) fn root(image: &Unpacked, words: ShareArg) -> ShareArg {
    ShareArg { host: image.root.clone(), cache: words.cache.or(Some(CacheMode::Always)), ..words }
}

/// What the image says about its programs, as far as the command line does not.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    pub(super) command: Vec<OsString>,
    pub(super) user: Option<User>,
    pub(super) directory: Option<std::path::PathBuf>,
    pub(super) env: Vec<(OsString, OsString)>,
}

impl Defaults {
    /// `asked_user` is that of `--user`, which overrides the image's, with its home.
    pub(super) fn of(image: Option<&Unpacked>, root: &Root, asked_user: Option<&str>) -> Result<Self> {
        let (Some(image), Root::Host(share)) = (image, root) else { return Ok(Self::default()) };
        let config = &image.config;
        let words = Some(&*config.user).filter(|user| !user.is_empty());
        let user = match asked_user {
            Some(_) => None,
            None => words.map(|words| parse_user(words, Some(&share.host))).transpose()?,
        };
        let home = asked_user.or(words).and_then(|words| home_of(words, &share.host));
        let home = home.map(|home| ("HOME".into(), home.into()));
        let pairs = config.env.iter().filter_map(|pair| pair.split_once('='));
        let named = pairs.filter(|(name, _)| !name.is_empty()).map(|(name, value)| (name.into(), value.into()));
        Ok(Self {
            command: config.command().into_iter().map(OsString::from).collect(),
            user,
            directory: Some(&config.working_dir).filter(|path| !path.is_empty()).map(Into::into),
            env: home.into_iter().chain(named).collect(),
        })
    }
}

/// Shows how far unpacking has come, and stops it when a signal comes.
struct Progress<'a> {
    report: &'a OnStderr,
    name: String,
    len_bytes: Cell<u64>,
    signals: &'a Signals,
}

impl Watch for Progress<'_> {
    fn begins(&self, len_bytes: u64) {
        self.len_bytes.set(len_bytes);
        let mib = len_bytes as f64 / f64::from(1 << 20);
        self.report.say(&format!("transom: unpacking {} ({mib:.1} MiB), which happens once", self.name));
    }

    fn advances(&self, done_bytes: u64) {
        let len_bytes = self.len_bytes.get().max(1);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let remaining = format!(", {:.1} of {:.1} MiB", mib(done_bytes), mib(len_bytes));
        self.report.advance_transfer((done_bytes as f64 / len_bytes as f64 * 100.0) as f32, &remaining);
        if done_bytes == len_bytes {
            self.report.clear();
        }
    }

    fn waits_for(&self, path: &Path) {
        self.report.say(&format!(
            "transom: waiting for another run, which unpacks or removes the same image and holds {}",
            path_in_line(path)
        ));
    }

    fn is_cancelled(&self) -> bool {
        self.signals.has_come()
    }
}
