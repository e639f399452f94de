//! Shares whose directories stay as they are: opened before a run, and told about after it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use transom_overlay::{Change, Overlay};
use transom_vm::{Error, Layer, Result, Share};

use crate::overlay::{counted, quoted, refusal};

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
    /// Opens the overlays of those `shares` for which `is_overlay` holds, and names them to their daemons. Tells if one
    /// has changes of an earlier run.
    pub(super) fn open(shares: &mut [Share], is_overlay: impl Fn(usize) -> bool) -> Result<Self> {
        let mut opened = Vec::new();
        for (number, share) in shares.iter_mut().enumerate().filter(|(number, _)| is_overlay(*number)) {
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
                eprintln!("transom: {remark}");
            }
            let changes = overlay.changes().map_err(unusable)?;
            if let Some(count) = counted(&changes) {
                eprintln!(
                    "transom: {} continues with {count} of earlier runs; `transom discard {}` begins anew",
                    share.host.display(),
                    quoted(&share.host)
                );
            }
            let held = Arc::new(overlay.held().map_err(unusable)?);
            share.layer = Some(Layer { path: overlay.layers().to_owned(), held });
            opened.push((overlay, share.guest.clone()));
        }
        Ok(Self(opened))
    }

    /// Tells what the guest has changed, and commits it if `commits`. All daemons of the run must be about to end.
    pub(super) fn finish(self, commits: bool) -> Vec<Outcome> {
        self.0.into_iter().map(|(overlay, guest)| finish(overlay, guest, commits)).collect()
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
            eprintln!("transom: {count} committed to {shown}");
            crate::overlay::tell_set_id(&committed);
        } else {
            eprintln!(
                "transom: {count} changed in {shown}: transom diff {word}, transom commit {word}, transom discard \
                 {word}"
            );
        }
        Ok(())
    });
    if let Err(error) = result {
        let text = refusal(&error, &outcome.directory);
        eprintln!("transom: {text}");
        outcome.error = Some(text);
    }
    outcome
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
