//! The guards: what is changed on entry is given back on drop, in the opposite order.
//!
//! Giving back cannot fail by the rules of Linux: a thread may always return to its real ids, and raise what is permitted.
//! Where it fails nonetheless, the thread would go on to serve one guest user's requests with the rights of another, and
//! nobody above could put it right, since a drop has no result: the process aborts.

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

/// The thread acts for a caller of the guest; dropping it ends that.
#[derive(Debug)]
#[must_use = "the ids are given back when the guard is dropped"]
pub(crate) struct Assumed<'a> {
    credentials: &'a Credentials,
    has_uid: bool,
    has_gid: bool,
    has_groups: bool,
    has_capabilities: bool,
    thread: OnThisThread,
}

impl<'a> Assumed<'a> {
    /// Changes what is not `None`. An error on the way undoes what was done, by the drop of the guard.
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
        // Groups first: the right to change them goes with the uid.
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

/// The thread is without CAP_FSETID, and in a group if one was named; dropping it ends that.
#[derive(Debug)]
#[must_use = "the capability comes back when the guard is dropped"]
pub(crate) struct NoFsetid<'a> {
    credentials: &'a Credentials,
    has_gid: bool,
    has_capabilities: bool,
    thread: OnThisThread,
}

impl<'a> NoFsetid<'a> {
    /// Changes nothing without CAP_FSETID. An error on the way undoes what was done, by the drop of the guard.
    pub(super) fn enter(credentials: &'a Credentials, gid: Option<Gid>) -> Result<Self, Errno> {
        let own = &credentials.own_capabilities;
        let mut guard = Self { credentials, has_gid: false, has_capabilities: false, thread: PhantomData };
        if !own.effective.contains(CapabilitySet::FSETID) {
            return Ok(guard);
        }
        // A group that the user namespace does not have cannot be joined; then the host has the say.
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

/// The thread has a caller's umask; dropping it ends that.
#[derive(Debug)]
#[must_use = "the umask comes back when the guard is dropped"]
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

/// Aborts where the thread could not be given back its own `what`; the file's head says why.
fn must<T>(what: &str, outcome: Result<T, Errno>) {
    if let Err(errno) = outcome {
        tracing::error!(%errno, what, "a thread cannot return to its own rights; the process ends");
        std::process::abort();
    }
}
