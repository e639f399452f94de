//! Common parts of operations that create: the owner of the new file, its mode, its label and the reply.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, XattrFlags};
use transom_wire::{NodeId, attr::EntryOut, extension::SecurityContext, ops::init::InitFlags};

use super::{
    Passthrough,
    inodes::{Inode, InodeFd},
};
use crate::{
    Errno,
    credentials::{Assumed, UmaskGuard},
    server::{BlockingMode, Context},
};

/// Makes the thread act for the caller until this is dropped.
#[must_use = "the thread's own ids are restored when it is dropped"]
pub(super) struct Creator<'a> {
    _ids: Assumed<'a>,
    _umask: Option<UmaskGuard>,
}

impl Passthrough {
    /// Assumes the caller's ids, and its umask if the guest leaves that to the host.
    pub(super) fn creator(&self, ctx: &Context<'_>, umask: u32) -> Result<Creator<'_>, Errno> {
        let (uid, gid) = (self.host_uid(ctx.uid)?, self.host_gid(ctx.gid)?);
        let group = ctx.extensions.supp_group.filter(|_| self.has(InitFlags::CREATE_SUPP_GROUP));
        let group = group.map(|gid| self.host_gid(gid)).transpose()?;
        let _umask = self.has(InitFlags::DONT_MASK).then(|| self.credentials.with_umask(umask)).transpose()?;
        Ok(Creator { _ids: self.credentials.assume(uid, gid, group)?, _umask })
    }

    /// Labels what was created as `name` in `dir`, then looks it up. Removes it if a required label cannot be set.
    ///
    /// `flags` are those with which `unlinkat` removes it.
    pub(super) fn created(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        flags: AtFlags,
    ) -> Result<EntryOut, Errno> {
        let referred = self.refer(dir, name, BlockingMode::MayBlock);
        let labelled = match &referred {
            Ok(fd) => self.label(ctx, fd),
            Err(errno) if self.due_label(ctx).is_some() => Err(*errno),
            Err(_) => Ok(()),
        };
        labelled.inspect_err(|_| remove_again(dir, name, flags))?;
        let fd = referred?;
        self.admit(parent, dir, name, InodeFd::Owned(fd))
    }

    /// Sets the label that the guest's security module sent with the request on a new file.
    pub(super) fn label(&self, ctx: &Context<'_>, fd: impl AsFd) -> Result<(), Errno> {
        let Some((name, value)) = self.due_label(ctx) else { return Ok(()) };
        let name = self.host_xattr_name(name)?;
        self.proc_fds.set_xattr(fd, &name, value, XattrFlags::empty())
    }

    /// Returns the label that a new file has to get.
    fn due_label<'a>(&self, ctx: &Context<'a>) -> Option<SecurityContext<'a>> {
        ctx.extensions.secctx.filter(|_| self.has(InitFlags::SECURITY_CTX))
    }
}

/// Undoes a creation that the guest will not learn of.
pub(super) fn remove_again(dir: &Inode, name: &[u8], flags: AtFlags) {
    if let Err(errno) = rustix::fs::unlinkat(&dir.fd, name, flags) {
        tracing::debug!(%errno, name = %name.escape_ascii(), "cannot remove a new file that got no label");
    }
}

/// Returns the permission bits of `mode`, including the set-id and sticky bits.
pub(super) fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}
