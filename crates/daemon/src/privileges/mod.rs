//! Privileges of the serving daemon: capabilities, and the number of open descriptors (`nofile`).

pub mod nofile;

use crate::options::{CapabilityChange, FileHandles};
use crate::sandbox::IdScope;
use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use std::io;
use thiserror::Error;
use tracing::{debug, warn};

/// Why privileges could not be reduced.
#[derive(Debug, Error)]
pub enum PrivilegeError {
    /// A capability call failed.
    #[error("cannot reduce capabilities: {0}")]
    Capabilities(#[from] CapsError),
    /// Setting a flag of the process failed.
    #[error("cannot give up gaining privileges: {0}")]
    NoNewPrivileges(#[source] io::Error),
}

/// The privileges of the process that a file system has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privileges {
    /// The process can create files as other users and groups.
    pub may_take_ids: bool,
    /// The process can change the owner of files.
    pub may_give_files: bool,
    /// The process can open files by handle. Linux grants that only in the initial user namespace.
    pub may_open_by_handle: bool,
    /// The process bypasses permission bits of files whose owners it knows, so that the guest's kernel decides about
    /// them.
    pub overrides_permissions: bool,
}

/// The capabilities that serving files for other users needs.
const USUAL: [Capability; 8] = [
    Capability::CAP_CHOWN,        // chown for the guest's root
    Capability::CAP_DAC_OVERRIDE, // the guest's kernel checks permissions
    Capability::CAP_FOWNER,       // chmod, utimensat and sticky directories for the guest's root
    Capability::CAP_FSETID,       // set-id bits survive where the guest's root changes a file
    Capability::CAP_SETGID,       // files are created with the caller's group
    Capability::CAP_SETUID,       // files are created with the caller's user
    Capability::CAP_MKNOD,        // devices, and the whiteouts of overlayfs
    Capability::CAP_SETFCAP,      // security.capability
];

/// Reduces this process to the capabilities that it needs, permanently. Must be called before the first thread starts.
pub fn reduce(
    changes: &[CapabilityChange],
    file_handles: FileHandles,
    ids: IdScope,
) -> Result<Privileges, PrivilegeError> {
    let wanted = wanted(changes, file_handles);
    let permitted = caps::read(None, CapSet::Permitted)?;
    for change in changes.iter().filter(|change| change.is_kept && !permitted.contains(&change.capability)) {
        warn!("--modcaps asks for {}, which this process does not have", change.capability);
    }
    let kept: CapsHashSet = wanted.intersection(&permitted).copied().collect();

    // The bounding set first: shrinking it needs a capability that is about to be dropped. Failure is no error, because
    // the set has no effect once no program can gain privileges.
    for capability in caps::read(None, CapSet::Bounding)?.difference(&kept) {
        if let Err(error) = caps::drop(None, CapSet::Bounding, *capability) {
            debug!(%error, %capability, "cannot shrink the bounding set");
            break;
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::clear(None, CapSet::Inheritable)?;
    rustix::thread::set_no_new_privs(true).map_err(|error| PrivilegeError::NoNewPrivileges(error.into()))?;

    let has = |capability| kept.contains(&capability);
    Ok(Privileges {
        may_take_ids: has(Capability::CAP_SETUID) && has(Capability::CAP_SETGID) && ids != IdScope::One,
        may_give_files: has(Capability::CAP_CHOWN) && ids != IdScope::One,
        may_open_by_handle: has(Capability::CAP_DAC_READ_SEARCH) && ids == IdScope::Machine,
        overrides_permissions: has(Capability::CAP_DAC_OVERRIDE),
    })
}

fn wanted(changes: &[CapabilityChange], file_handles: FileHandles) -> CapsHashSet {
    let mut wanted: CapsHashSet = USUAL.into_iter().collect();
    if file_handles != FileHandles::Never {
        wanted.insert(Capability::CAP_DAC_READ_SEARCH);
    }
    for change in changes {
        if change.is_kept {
            wanted.insert(change.capability);
        } else {
            wanted.remove(&change.capability);
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Vec<CapabilityChange> {
        text.split(':').map(|change| change.parse().unwrap()).collect()
    }

    #[test]
    fn handles_need_one_capability_more() {
        assert_eq!(wanted(&[], FileHandles::Never).len(), 8);
        assert!(wanted(&[], FileHandles::Prefer).contains(&Capability::CAP_DAC_READ_SEARCH));
    }

    #[test]
    fn changes_apply_in_order() {
        let wanted = wanted(&changes("+sys_admin:-mknod:-cap_sys_admin:+sys_nice"), FileHandles::Never);

        assert!(!wanted.contains(&Capability::CAP_MKNOD));
        assert!(!wanted.contains(&Capability::CAP_SYS_ADMIN));
        assert!(wanted.contains(&Capability::CAP_SYS_NICE));
    }
}
