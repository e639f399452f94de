//! Shares whose directories stay as they are: opened before a run, and told about after it.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use transom_overlay::{Change, Overlay};
use transom_vm::{Error, Layer, MountedBy, OverlayArg, Result, Share, ShareArg};

use crate::{
    overlay::{counted, quoted, refusal},
    tell::tell,
};

/// The overlays of a run, each with its mount point.
#[derive(Debug, Default)]
pub(super) struct Overlays(Vec<(Overlay, PathBuf)>);

/// What became of an overlay.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) directory: PathBuf,
    pub(super) guest: PathBuf,
    pub(super) changes: Vec<Change>,
    pub(super) is_committed: bool,
    /// Why the changes cannot be told, or could not be committed.
    pub(super) error: Option<String>,
}

impl Overlays {
    /// Opens the overlays of those `shares` for which `overlay` returns one, and names them to their daemons, which are
    /// processes of `daemon`. Tells if one has changes of an earlier run, and if the host's kernel cannot mount one.
    pub(super) fn open(
        shares: &mut [Share],
        daemon: &Path,
        overlay: impl Fn(usize) -> Option<OverlayArg>,
    ) -> Result<Self> {
        let mut opened = Vec::new();
        for (number, share) in shares.iter_mut().enumerate() {
            let Some(wanted) = overlay(number) else { continue };
            let unusable = |error: transom_overlay::Error| Error::Usage(format!("share {:?}: {error}", share.host));
            if share.daemon_args.iter().any(|word| word == "--coherence-group") {
                return Err(Error::Usage(format!(
                    "share {:?}: overlay and --coherence-group exclude each other, because other guests do not see the \
                     changes (share number {})",
                    share.host,
                    number + 1
                )));
            }
            let overlay = Overlay::for_run(&share.host).map_err(unusable)?;
            if let Some(remark) = overlay.remark() {
                tell(remark);
            }
            let changes = overlay.changes().map_err(unusable)?;
            if let Some(count) = counted(&changes) {
                tell(format_args!(
                    "{} continues with {count} of earlier runs; `transom discard {}` begins anew",
                    share.host.display(),
                    quoted(&share.host)
                ));
            }
            let held = Arc::new(overlay.held().map_err(unusable)?);
            let by_daemon =
                Layer { path: overlay.layers(), held, mounted_by: MountedBy::Daemon, daemon_args: Vec::new() };
            share.layer = Some(by_daemon.clone());
            if is_mounted_by_guest(share, daemon, wanted)? {
                let Divided { of_directory, of_layer, hidden } = divide(share)?;
                share.daemon_args = of_directory;
                share.layer = Some(Layer { mounted_by: MountedBy::Guest, daemon_args: of_layer, ..by_daemon });
                overlay.for_guest(&hidden).map_err(unusable)?;
            }
            opened.push((overlay, share.guest.clone()));
        }
        Ok(Self(opened))
    }

    /// Tells what the guest has changed, and commits it if `commits`. All daemons of the run must be about to end.
    pub(super) fn finish(self, commits: bool) -> Vec<Outcome> {
        self.0.into_iter().map(|(overlay, guest)| finish(overlay, guest, commits)).collect()
    }
}

impl super::Run {
    /// Returns whether the share with this number is an overlay, and who is to mount it.
    pub(super) fn overlay(&self, number: usize) -> Option<OverlayArg> {
        ShareArg::parse(self.shares.get(number)?).ok()?.overlay
    }
}

fn finish(overlay: Overlay, guest: PathBuf, commits: bool) -> Outcome {
    let directory = overlay.directory().to_owned();
    let mut outcome = Outcome { directory, guest, changes: Vec::new(), is_committed: false, error: None };
    let result = overlay.after_run().and_then(|mut overlay| {
        outcome.changes = overlay.changes()?;
        let Some(count) = counted(&outcome.changes) else {
            // Times alone are not worth keeping.
            return overlay.discard(&[]).map(drop);
        };
        let (shown, word) = (outcome.directory.display(), quoted(&outcome.directory));
        if commits {
            let committed = overlay.commit(&[], false)?;
            outcome.is_committed = true;
            tell(format_args!("{count} committed to {shown}"));
            crate::overlay::tell_set_id(&committed);
        } else {
            tell(format_args!(
                "{count} changed in {shown}: transom diff {word}, transom commit {word}, transom discard {word}"
            ));
        }
        Ok(())
    });
    if let Err(error) = result {
        let text = refusal(&error, &outcome.directory);
        tell(&text);
        outcome.error = Some(text);
    }
    outcome
}

/// Returns whether the guest's kernel is to mount the overlay of the share; says so if it was not asked for.
fn is_mounted_by_guest(share: &Share, daemon: &Path, wanted: OverlayArg) -> Result<bool> {
    if wanted == OverlayArg::By(MountedBy::Guest) {
        return Ok(true);
    }
    let Some(why) = transom_vm::overlay_obstacle(daemon, share)? else { return Ok(false) };
    if wanted != OverlayArg::Auto {
        return Err(Error::Usage(format!(
            "share {:?}: {why}; with overlay=guest, the guest's kernel mounts the overlay",
            share.host
        )));
    }
    tell(format_args!(
        "the guest's kernel keeps the changes in {} apart, because this machine's does not: {why}",
        share.host.display()
    ));
    Ok(true)
}

/// The arguments of a share's daemon, for two.
#[derive(Debug, Default)]
struct Divided {
    of_directory: Vec<OsString>,
    of_layer: Vec<OsString>,
    /// What is hidden in the directory.
    hidden: Vec<PathBuf>,
}

/// Divides the arguments of a share's daemon among those of the directory, which is read-only, and of the layer, if
/// the guest puts them together.
fn divide(share: &Share) -> Result<Divided> {
    let refused = |what: &str| {
        Err(Error::Usage(format!(
            "share {:?}: {what} needs an overlay that the host's kernel mounts (overlay=host), because a guest that \
             mounts it itself has two shares for it",
            share.host
        )))
    };
    if share.dax.is_some() {
        return refused("dax");
    }
    let mut divided = Divided::default();
    let Divided { of_directory, of_layer, hidden } = &mut divided;
    for word in &share.daemon_args {
        let text = word.to_string_lossy();
        if matches!(&*text, "--quota" | "--hide") {
            return Err(Error::Usage(format!(
                "share {:?}: write --daemon-arg={text}=VALUE as one word, because a guest that mounts the overlay has \
                 two shares for it",
                share.host
            )));
        }
        match text.split_once('=').map_or(&*text, |(option, _)| option) {
            // What the guest adds is in the layer.
            "--quota" => of_layer.push(word.clone()),
            // Overlayfs writes as root, so the daemon could not tell which writes end set-id bits.
            "--killpriv-v2" => of_directory.push(word.clone()),
            "--hide" => {
                let path = Path::new(OsStr::from_bytes(&word.as_bytes()["--hide=".len().min(word.len())..]));
                let Ok(below) = path.strip_prefix("/") else { return refused("--daemon-arg=--hide") };
                hidden.push(below.to_owned());
                of_directory.push(word.clone());
                let mut in_layer = OsString::from("--hide=/upper/");
                in_layer.push(below);
                of_layer.push(in_layer);
            }
            option @ ("--hide-name" | "--hide-contents" | "--show" | "--xattrmap" | "--readonly" | "--cache") => {
                return refused(&format!("--daemon-arg={option}"));
            }
            // It can say any of these, and comes last.
            option if option.starts_with("-o") => return refused("--daemon-arg=-o"),
            _ => {
                of_directory.push(word.clone());
                of_layer.push(word.clone());
            }
        }
    }
    Ok(divided)
}

/// Returns whether a share of this host directory and this text is an overlay.
pub(super) fn check_root(root: &Path, is_overlay: bool) -> Result<()> {
    if !is_overlay {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "--root {}: what the guest changes in its root stays in its memory anyway; to keep changes of a directory in \
         it, give that as --share DIR,overlay",
        root.display()
    )))
}
