//! The rights with which files are registered, which are those with which the kernel reads and writes them ever after.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::super::End;

/// Registering takes the first; opening a descriptor of the daemon for reading, whoever may read the file, the second.
///
/// What is not among them matters: without CAP_FSETID the host clears set-id bits of a file that is written, without
/// CAP_SYS_RESOURCE quotas and the blocks that are kept for root hold.
const KEPT: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::DAC_READ_SEARCH);

/// Whether this thread may register files, as far as it can know: in a user namespace the kernel says no all the same.
pub(super) fn may_register() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Takes from this thread all other capabilities. Errors: those of capset(2), which lets everybody have less.
pub(crate) fn keep_few() -> Result<(), End> {
    let sets = capabilities(None).map_err(End::Kernel)?;
    let kept = sets.permitted & KEPT;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(End::Kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_registering_takes_and_other_threads_keep_theirs() {
        let before = capabilities(None).unwrap();
        let kept = std::thread::spawn(|| keep_few().map(|()| capabilities(None).unwrap()).unwrap()).join().unwrap();
        assert_eq!(kept.effective, before.permitted & KEPT);
        assert_eq!(kept.permitted, kept.effective);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
