//! The owner of a new file: the thread assumes the caller's ids for one operation and then restores its own.
//!
//! [`Credentials`] holds what this process may do, determined once; [`Credentials::assume`] and
//! [`Credentials::without_fsetid`] return guards. On Linux, ids and capabilities belong to a thread, and the calls
//! used here change only this thread, unlike the wrappers of the C library. There are no locks, and a guard stays on
//! its thread.
//!
//! **Rights of the thread meanwhile.** With an effective uid other than 0, Linux drops all effective capabilities. The
//! guest's kernel has already allowed the operation, based on facts that the host does not know: supplementary groups,
//! ACL entries, the caller's capabilities, user namespaces of the guest. A second check with one uid and two gids can
//! only refuse what was rightly allowed. So [`Judge::Guest`] keeps CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, and
//! CAP_MKNOD for device nodes, as far as the process has them. [`Judge::Host`] keeps nothing and lets the host check
//! as well: it is for shares with translated ids, where the two sides see different owners. CAP_FSETID is never kept:
//! it would let set-group-id survive on a file whose group the caller is not in.
//!
//! Changing the effective uid also clears the thread's parent-death signal and makes the process not dumpable; the
//! daemon's workers rely on neither.

mod guard;

pub(crate) use guard::{Assumed, NoFsetid, UmaskGuard};

use rustix::{
    fs::Mode,
    io::Errno,
    process::{getegid, geteuid, getgroups},
    thread::{CapabilitySet, CapabilitySets, Gid, Uid, capabilities},
};

use crate::{
    idmap::{HostGid, HostUid},
    sysfd::thread_fs,
};

/// Decides whether a caller may create a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judge {
    /// The guest's kernel, which has already decided.
    Guest,
    /// The host, which checks again with the ids of the new file.
    Host,
}

/// The id changes that this process may make on its threads.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    own_uid: Uid,
    own_gid: Gid,
    own_groups: Vec<Gid>,
    own_capabilities: CapabilitySets,
    /// Capabilities that stay effective under other ids.
    kept: CapabilitySet,
    is_able: bool,
}

/// Capabilities that stay effective under [`Judge::Guest`].
const KEPT: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::MKNOD);

impl Credentials {
    /// Inspects the calling thread. Every thread that uses the result must have been started with the same rights.
    ///
    /// Call it after dropping privileges and before starting workers.
    pub(crate) fn detect(judge: Judge) -> Result<Self, Errno> {
        let own_capabilities = capabilities(None)?;
        let kept = match judge {
            Judge::Guest => KEPT & own_capabilities.effective,
            Judge::Host => CapabilitySet::empty(),
        };
        Ok(Self {
            own_uid: geteuid(),
            own_gid: getegid(),
            own_groups: getgroups()?,
            kept,
            is_able: own_capabilities.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID),
            own_capabilities,
        })
    }

    /// Assumes `uid`, `gid` and, as the only supplementary group, `group`, until the guard is dropped.
    ///
    /// Changes nothing if the process cannot change ids. Ids of 0 stand for the process's own, since the daemon's user
    /// need not be 0 in its user namespace, nor need 0 exist there. Makes at most five system calls, and at most four
    /// to restore.
    ///
    /// # Errors
    ///
    /// EINVAL for an id that is invalid or does not exist in the process's user namespace; nothing is changed then.
    pub(crate) fn assume(&self, uid: HostUid, gid: HostGid, group: Option<HostGid>) -> Result<Assumed<'_>, Errno> {
        let Ids { uid, gid, group } = self.wanted(uid, gid, group)?;
        Assumed::enter(self, uid, gid, group)
    }

    /// Takes CAP_FSETID from the thread until the guard is dropped, so that the host clears set-id bits on a WRITE, a
    /// truncation or a mode change as it would for an ordinary user.
    ///
    /// With `group`, the thread is also in that group meanwhile: since 6.2, if the file's group may not execute it,
    /// Linux clears set-group-id only for a caller who is not in the group. Ignores a group that the thread cannot
    /// join. Changes nothing without CAP_FSETID. Makes two system calls, or four with `group`. Must not be called
    /// while ids are assumed, since CAP_FSETID is not effective then.
    pub(crate) fn without_fsetid(&self, group: Option<HostGid>) -> Result<NoFsetid<'_>, Errno> {
        let group = group.map(|gid| Gid::from_raw(gid.0)).filter(|&gid| self.is_able && gid != self.own_gid);
        NoFsetid::enter(self, group)
    }

    /// Lets the host apply the caller's umask until the guard is dropped, which it does unless a default ACL takes its
    /// place.
    ///
    /// For creating operations in a session with DONT_MASK; otherwise the guest has already applied the umask. Gives
    /// the thread a umask of its own: see [`thread_fs`].
    pub(crate) fn with_umask(&self, umask: u32) -> Result<UmaskGuard, Errno> {
        UmaskGuard::enter(Mode::from_raw_mode(umask & 0o777))
    }

    /// Returns only the ids that need a change.
    fn wanted(&self, uid: HostUid, gid: HostGid, group: Option<HostGid>) -> Result<Ids, Errno> {
        if uid.0 == u32::MAX || gid.0 == u32::MAX || group == Some(HostGid(u32::MAX)) {
            return Err(Errno::INVAL);
        }
        if !self.is_able {
            return Ok(Ids::default());
        }
        let uid = (uid.0 != 0).then(|| Uid::from_raw(uid.0));
        let gid = (gid.0 != 0).then(|| Gid::from_raw(gid.0)).filter(|&gid| gid != self.own_gid);
        // If the caller stays the process itself, a group grants nothing that its capabilities do not.
        let group = group.filter(|_| uid.is_some()).map(|group| Gid::from_raw(group.0));
        Ok(Ids { uid, gid, group })
    }
}

/// The ids to change to; `None` leaves one unchanged.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ids {
    uid: Option<Uid>,
    gid: Option<Gid>,
    group: Option<Gid>,
}

#[cfg(test)]
#[path = "credentials_test.rs"]
mod credentials_test;
