//! Whose a new file is: the thread takes on the caller's ids for one operation and gives them back.
//!
//! [`Credentials`] knows once what this process may do; [`Credentials::assume`] and [`Credentials::without_fsetid`] answer
//! guards. Ids and capabilities belong to a thread on Linux, and the calls used here change this thread alone, unlike the
//! wrappers of the C library. There are no locks; a guard stays on its thread.
//!
//! **What the thread may do meanwhile.** With an effective uid other than 0, Linux takes all effective capabilities away.
//! The guest's kernel has by then allowed the operation, with all that it knows and the host does not: supplementary
//! groups, entries of an ACL, capabilities of the caller, user namespaces of the guest. A second check with a uid and two
//! gids can only refuse what was rightly allowed. So [`Judge::Guest`] keeps CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, and
//! CAP_MKNOD for device nodes, of those that the process has. [`Judge::Host`] keeps nothing and asks the host as well: it
//! is for shares where the two sides do not see the same owners, that is, with translated ids. CAP_FSETID is never kept:
//! with it, set-group-id would survive on a file of a group that the caller is not in.
//!
//! A change of the effective uid also clears the thread's parent-death signal and makes the process not dumpable; the
//! daemon relies on neither in its workers.

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

/// Who decides whether a caller may create something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judge {
    /// The guest's kernel has decided.
    Guest,
    /// The host checks again, with the ids that the new file gets.
    Host,
}

/// What this process may do about the ids of its threads.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    own_uid: Uid,
    own_gid: Gid,
    own_groups: Vec<Gid>,
    own_capabilities: CapabilitySets,
    /// What stays effective under other ids.
    kept: CapabilitySet,
    is_able: bool,
}

/// What stays effective under [`Judge::Guest`].
const KEPT: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::MKNOD);

impl Credentials {
    /// Looks at the calling thread; the threads that use the answer have been started with the same rights.
    ///
    /// Call it after rights were given up, and before workers start.
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

    /// Takes on `uid`, `gid` and, as the only supplementary group, `group`, until the guard is dropped.
    ///
    /// Changes nothing where the process cannot change ids. Ids of 0 stand for the process's own, since the user that the
    /// daemon runs as need not be 0 in its user namespace, nor 0 exist there. Five system calls at most, then four.
    /// Errors: EINVAL for an id that is none, or that the process's user namespace does not have; nothing is changed then.
    pub(crate) fn assume(&self, uid: HostUid, gid: HostGid, group: Option<HostGid>) -> Result<Assumed<'_>, Errno> {
        let Ids { uid, gid, group } = self.wanted(uid, gid, group)?;
        Assumed::enter(self, uid, gid, group)
    }

    /// Takes CAP_FSETID from the thread until the guard is dropped, so that the host clears set-id bits with a WRITE, a
    /// truncation or a change of the mode as it would for an ordinary user.
    ///
    /// With `group`, the thread is in that group meanwhile: Linux since 6.2 clears set-group-id of a file that its group may
    /// not execute only for a caller who is not in the group. A group that the thread cannot join is ignored.
    /// Changes nothing without CAP_FSETID. Two system calls, four with `group`. Not while ids are assumed: CAP_FSETID is not
    /// effective then.
    pub(crate) fn without_fsetid(&self, group: Option<HostGid>) -> Result<NoFsetid<'_>, Errno> {
        let group = group.map(|gid| Gid::from_raw(gid.0)).filter(|&gid| self.is_able && gid != self.own_gid);
        NoFsetid::enter(self, group)
    }

    /// Lets the host apply the caller's umask until the guard is dropped: it does so unless a default ACL counts instead.
    ///
    /// For creating operations where the session has DONT_MASK; otherwise the guest has applied it.
    /// The thread's umask becomes one of its own: see [`thread_fs`].
    pub(crate) fn with_umask(&self, umask: u32) -> Result<UmaskGuard, Errno> {
        UmaskGuard::enter(Mode::from_raw_mode(umask & 0o777))
    }

    /// The ids that need a change, and those alone.
    fn wanted(&self, uid: HostUid, gid: HostGid, group: Option<HostGid>) -> Result<Ids, Errno> {
        if uid.0 == u32::MAX || gid.0 == u32::MAX || group == Some(HostGid(u32::MAX)) {
            return Err(Errno::INVAL);
        }
        if !self.is_able {
            return Ok(Ids::default());
        }
        let uid = (uid.0 != 0).then(|| Uid::from_raw(uid.0));
        let gid = (gid.0 != 0).then(|| Gid::from_raw(gid.0)).filter(|&gid| gid != self.own_gid);
        // Where the caller stays the process itself, a group adds nothing that capabilities do not.
        let group = group.filter(|_| uid.is_some()).map(|group| Gid::from_raw(group.0));
        Ok(Ids { uid, gid, group })
    }
}

/// Ids to change to; `None` stays.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ids {
    uid: Option<Uid>,
    gid: Option<Gid>,
    group: Option<Gid>,
}

#[cfg(test)]
#[path = "credentials_test.rs"]
mod credentials_test;
