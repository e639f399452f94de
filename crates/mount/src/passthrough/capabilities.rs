//! The capabilities of threads that register backing files. The kernel uses them for every later read and write of the
//! file.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::MountEnd;

/// SYS_ADMIN is needed to register files, DAC_READ_SEARCH to open a file of the daemon for reading whatever its mode.
///
/// Dropping the others matters: without CAP_FSETID the host clears set-id bits of a file that is written, and without
/// CAP_SYS_RESOURCE quotas hold.
const KEPT: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::DAC_READ_SEARCH);

/// Returns whether this thread has CAP_SYS_ADMIN. In a user namespace the kernel still refuses to register files.
pub(super) fn may_register() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Drops all capabilities of this thread but those that passthrough needs.
///
/// # Errors
/// Those of capset(2). Every thread may drop capabilities.
pub(crate) fn drop_most() -> Result<(), MountEnd> {
    let sets = capabilities(None).map_err(MountEnd::Kernel)?;
    let kept = sets.permitted & KEPT;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(MountEnd::Kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_registering_needs_and_other_threads_keep_theirs() {
        let before = capabilities(None).unwrap();
        let kept = std::thread::spawn(|| drop_most().map(|()| capabilities(None).unwrap()).unwrap()).join().unwrap();
        assert_eq!(kept.effective, before.permitted & KEPT);
        assert_eq!(kept.permitted, kept.effective);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
