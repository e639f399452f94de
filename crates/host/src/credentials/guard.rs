//! Guards that change a thread's ids, capabilities or umask on entry and restore them on drop, in reverse order.
//!
//! By the rules of Linux, restoring cannot fail: a thread may always return to its real ids and raise its permitted
//! capabilities. If it failed nonetheless, the thread would serve one guest user's requests with the rights of
//! another. A drop cannot return an error to its caller, so the process aborts.

use std::marker::PhantomData;

use rustix::{
    fs::Mode,
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, Gid, Uid, set_capabilities, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};

use super::{Credentials, thread_fs};

/// Keeps a guard on the thread whose rights it has changed.
type OnThisThread = PhantomData<*const ()>;

/// Makes the thread act for a caller of the guest until it is dropped.
#[derive(Debug)]
#[must_use = "the ids are restored when the guard is dropped"]
pub(crate) struct Assumed<'a> {
    credentials: &'a Credentials,
    has_uid: bool,
    has_gid: bool,
    has_groups: bool,
    has_capabilities: bool,
    thread: OnThisThread,
}

impl<'a> Assumed<'a> {
    /// Changes each id that is not `None`. If a step fails, dropping the guard undoes the earlier ones.
    pub(super) fn enter(
        credentials: &'a Credentials,
        uid: Option<Uid>,
        gid: Option<Gid>,
        group: Option<Gid>,
    ) -> Result<Self, Errno> {
        let mut guard = Self {
            credentials,
            has_uid: false,
            has_gid: false,
            has_groups: false,
            has_capabilities: false,
            thread: PhantomData,
        };
        // Groups first: changing the uid removes the right to change them.
        if let Some(gid) = gid {
            set_thread_res_gid(None, gid, None)?;
            guard.has_gid = true;
        }
        if let Some(group) = group {
            set_thread_groups(&[group])?;
            guard.has_groups = true;
        }
        if let Some(uid) = uid {
            if uid != credentials.own_uid {
                set_thread_res_uid(None, uid, None)?;
                guard.has_uid = true;
            }
            // From uid 0, nothing is effective now. From another uid, everything still is.
            let is_empty = guard.has_uid && credentials.own_uid.is_root();
            if !(is_empty && credentials.kept.is_empty()) {
                guard.has_capabilities = true;
                set_capabilities(None, CapabilitySets { effective: credentials.kept, ..credentials.own_capabilities })?;
            }
        }
        Ok(guard)
    }
}

impl Drop for Assumed<'_> {
    fn drop(&mut self) {
        let own = self.credentials;
        if self.has_uid {
            must("uid", set_thread_res_uid(None, own.own_uid, None));
        }
        // A return to uid 0 makes all permitted capabilities effective.
        let is_as_before =
            self.has_uid && own.own_uid.is_root() && own.own_capabilities.effective == own.own_capabilities.permitted;
        if (self.has_uid || self.has_capabilities) && !is_as_before {
            must("capabilities", set_capabilities(None, own.own_capabilities));
        }
        if self.has_groups {
            must("groups", set_thread_groups(&own.own_groups));
        }
        if self.has_gid {
            must("gid", set_thread_res_gid(None, own.own_gid, None));
        }
    }
}

/// Takes CAP_FSETID from the thread, and adds it to a group if one is named, until it is dropped.
#[derive(Debug)]
#[must_use = "the capability is restored when the guard is dropped"]
pub(crate) struct NoFsetid<'a> {
    credentials: &'a Credentials,
    has_gid: bool,
    has_capabilities: bool,
    thread: OnThisThread,
}

impl<'a> NoFsetid<'a> {
    /// Changes nothing without CAP_FSETID. If a step fails, dropping the guard undoes the earlier ones.
    pub(super) fn enter(credentials: &'a Credentials, gid: Option<Gid>) -> Result<Self, Errno> {
        let own = &credentials.own_capabilities;
        let mut guard = Self { credentials, has_gid: false, has_capabilities: false, thread: PhantomData };
        if !own.effective.contains(CapabilitySet::FSETID) {
            return Ok(guard);
        }
        // A group that does not exist in the user namespace cannot be joined; the host then decides.
        guard.has_gid = gid.is_some_and(|gid| set_thread_res_gid(None, gid, None).is_ok());
        set_capabilities(None, CapabilitySets { effective: own.effective - CapabilitySet::FSETID, ..*own })?;
        guard.has_capabilities = true;
        Ok(guard)
    }
}

impl Drop for NoFsetid<'_> {
    fn drop(&mut self) {
        let own = self.credentials;
        if self.has_capabilities {
            must("capabilities", set_capabilities(None, own.own_capabilities));
        }
        if self.has_gid {
            must("gid", set_thread_res_gid(None, own.own_gid, None));
        }
    }
}

/// Applies a caller's umask to the thread until it is dropped.
#[derive(Debug)]
#[must_use = "the umask is restored when the guard is dropped"]
pub(crate) struct UmaskGuard {
    before: Mode,
    thread: OnThisThread,
}

impl UmaskGuard {
    pub(super) fn enter(umask: Mode) -> Result<Self, Errno> {
        Ok(Self { before: thread_fs::set_umask(umask)?, thread: PhantomData })
    }
}

impl Drop for UmaskGuard {
    fn drop(&mut self) {
        must("umask", thread_fs::set_umask(self.before));
    }
}

/// Aborts if the thread's own `what` could not be restored; the module documentation says why.
fn must<T>(what: &str, outcome: Result<T, Errno>) {
    if let Err(errno) = outcome {
        tracing::error!(%errno, what, "cannot restore the rights of a thread; aborting");
        std::process::abort();
    }
}
