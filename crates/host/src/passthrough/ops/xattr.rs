//! SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR.

use std::{borrow::Cow, os::fd::AsFd};

use rustix::fs::XattrFlags;
use transom_wire::{
    limits::{XATTR_LIST_LEN_MAX, XATTR_VALUE_LEN_MAX},
    operation::{Getxattr, Listxattr, Removexattr, Setxattr},
    ops::init::InitFlags,
};

use crate::{
    Errno,
    acl::{self, AclName},
    passthrough::Passthrough,
    server::{Call, Serve, XattrReply},
};

impl Serve<Setxattr> for Passthrough {
    fn serve(&self, call: Call<'_, Setxattr>) -> Result<(), Errno> {
        let (nodeid, name, value, arg) = (call.nodeid, call.name, call.rest, &call.arg);
        self.check_xattr(name)?;
        self.check_writable()?;
        let host_name = self.host_xattr_name(name)?;
        let flags = XattrFlags::from_bits(arg.flags.get()).ok_or(Errno::INVAL)?;
        let inode = self.inode(nodeid)?;
        let Some(acl) = AclName::of(&host_name) else {
            return self.proc_fds.set_xattr(&inode.fd, &host_name, value, flags);
        };
        let mut value = value.to_vec();
        acl.to_host(&mut value, &self.config.owners)?;
        self.proc_fds.set_xattr(&inode.fd, &host_name, &value, flags)?;
        if acl.kills_set_group_id(arg.setxattr_flags.get()) {
            acl::kill_set_group_id(&self.proc_fds, &inode.fd)?;
        }
        Ok(())
    }
}

impl Serve<Getxattr> for Passthrough {
    fn serve(&self, call: Call<'_, Getxattr>) -> Result<XattrReply, Errno> {
        let (nodeid, name, size) = (call.nodeid, call.name, call.arg.size.get());
        self.check_xattr(name)?;
        let host_name = self.host_xattr_name(name).map_err(|errno| match errno {
            // For reading, attributes that the rules hide do not exist.
            Errno::PERM => Errno::NODATA,
            errno => errno,
        })?;
        let inode = self.inode(nodeid)?;
        if size == 0 {
            return self.proc_fds.get_xattr(&inode.fd, &host_name, &mut []).map(|len| XattrReply::Size(len as u32));
        }
        let mut value = vec![0; (size as usize).min(XATTR_VALUE_LEN_MAX)];
        let len = self.proc_fds.get_xattr(&inode.fd, &host_name, &mut value)?;
        value.truncate(len);
        if let Some(acl) = AclName::of(&host_name) {
            acl.to_guest(&mut value, &self.config.owners)?;
        }
        Ok(XattrReply::Bytes(value))
    }
}

impl Serve<Listxattr> for Passthrough {
    fn serve(&self, call: Call<'_, Listxattr>) -> Result<XattrReply, Errno> {
        let (nodeid, size) = (call.nodeid, call.arg.size.get());
        self.check_xattr(b"")?;
        let inode = self.inode(nodeid)?;
        let is_plain = self.config.xattr_map.is_none() && self.has(InitFlags::POSIX_ACL);
        if is_plain && size == 0 {
            return self.proc_fds.list_xattr(&inode.fd, &mut []).map(|len| XattrReply::Size(len as u32));
        }
        let names = self.list(&inode.fd)?;
        let names = match &self.config.xattr_map {
            Some(map) => map.filter_list(&names),
            None => names,
        };
        let names = if self.has(InitFlags::POSIX_ACL) { names } else { without_acls(&names) };
        match size as usize {
            0 => Ok(XattrReply::Size(names.len() as u32)),
            room if room < names.len() => Err(Errno::RANGE),
            _ => Ok(XattrReply::Bytes(names)),
        }
    }
}

impl Serve<Removexattr> for Passthrough {
    fn serve(&self, call: Call<'_, Removexattr>) -> Result<(), Errno> {
        let (nodeid, name) = (call.nodeid, call.name);
        self.check_xattr(name)?;
        self.check_writable()?;
        let host_name = self.host_xattr_name(name)?;
        self.proc_fds.remove_xattr(&self.inode(nodeid)?.fd, &host_name)
    }
}

impl Passthrough {
    /// Returns the host's name of an attribute.
    pub(in crate::passthrough) fn host_xattr_name<'a>(&self, name: &'a [u8]) -> Result<Cow<'a, [u8]>, Errno> {
        match &self.config.xattr_map {
            Some(map) => map.to_server(name),
            None => Ok(Cow::Borrowed(name)),
        }
    }

    /// Removes the capabilities of a regular file, if they are stored under a name that the host does not recognise.
    ///
    /// Called before a file's data or owner changes: that is when Linux removes the attribute that it recognises, even
    /// for changes by root. `file` may be `O_PATH`.
    ///
    /// # Errors
    ///
    /// The reason why the attribute cannot be removed, if the file has it; the change must not be made then.
    pub(in crate::passthrough) fn drop_capabilities(&self, file: impl AsFd) -> Result<(), Errno> {
        let Some(name) = &self.capability_name else { return Ok(()) };
        match self.proc_fds.remove_xattr(&file, name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            // Linux checks the right to remove an attribute before it looks the attribute up.
            Err(errno) => match self.list(&file)?.split(|&byte| byte == 0).any(|listed| *listed == **name) {
                true => Err(errno),
                false => Ok(()),
            },
        }
    }

    /// # Errors
    ///
    /// ENOSYS if the share has no extended attributes, EOPNOTSUPP for an ACL if the share has no ACLs.
    fn check_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        if !self.config.xattr {
            return Err(Errno::NOSYS);
        }
        if AclName::of(name).is_some() && !self.has(InitFlags::POSIX_ACL) { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    fn list(&self, fd: impl AsFd) -> Result<Vec<u8>, Errno> {
        let mut names = vec![0; 1024];
        loop {
            match self.proc_fds.list_xattr(&fd, &mut names) {
                Err(Errno::RANGE) if names.len() < XATTR_LIST_LEN_MAX => names.resize(XATTR_LIST_LEN_MAX, 0),
                len => {
                    names.truncate(len?);
                    return Ok(names);
                }
            }
        }
    }
}

fn without_acls(names: &[u8]) -> Vec<u8> {
    let seen = names.split_inclusive(|&byte| byte == 0).filter(|name| AclName::of(&name[..name.len() - 1]).is_none());
    seen.flatten().copied().collect()
}
