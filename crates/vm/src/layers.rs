//! A share under a layer that the guest's kernel puts over it, where the host's cannot: two shares and two daemons.
//!
//! The directory is shared read-only, and the layer is shared as it is on the host. The guest can do what it likes to
//! the layer, also beside its overlayfs: who reads it afterwards trusts nothing in it.

use std::ffi::OsString;

use crate::{CacheMode, Layer, MountedBy, Share};

/// An overlay rejects a lower layer with submounts.
pub(crate) const NO_SUBMOUNTS: &str = "--no-announce-submounts";
/// The kernel's notes are extended attributes, and it copies those of the files that it copies.
const XATTR: &str = "--xattr";

/// Returns whether the guest's kernel puts a layer over the share.
pub(crate) fn are_mounted_by_guest(share: &Share) -> bool {
    matches!(share.layer, Some(Layer { mounted_by: MountedBy::Guest, .. }))
}

/// Returns how many devices the guest gets for the share.
pub(crate) fn devices(share: &Share) -> usize {
    if are_mounted_by_guest(share) { 2 } else { 1 }
}

/// Returns the tag of the layer over the share `tag`.
pub(crate) fn tag(tag: &str) -> String {
    format!("{tag}-layer")
}

/// Returns the read-only share of the directory, and that of its layer, if the guest's kernel puts them together.
pub(crate) fn split(share: &Share) -> Option<[Share; 2]> {
    let layer = share.layer.as_ref().filter(|layer| layer.mounted_by == MountedBy::Guest)?;
    let mut lower = Share { is_read_only: true, layer: None, ..share.clone() };
    lower.daemon_args.extend([XATTR, NO_SUBMOUNTS].map(OsString::from));
    let mut daemon_args = layer.daemon_args.clone();
    daemon_args.extend([XATTR, "--upper-layer"].map(OsString::from));
    let upper = Share {
        host: layer.path.clone(),
        guest: share.guest.clone(),
        // Nobody else changes it during the run.
        cache: Some(CacheMode::Always),
        layer: Some(layer.clone()),
        daemon_args,
        ..Share::default()
    };
    Some([lower, upper])
}
