//! SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR.
//!
//! Each fails with EOPNOTSUPP if the server does not know it, with EINVAL for a name that is empty or contains a NUL,
//! and with ERANGE for a name of more than 255 bytes.

use transom_wire::{
    NodeId, Opcode,
    limits::{XATTR_LIST_LEN_MAX, XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX},
    operation::{Getxattr, Listxattr, Operation, Removexattr, Setxattr, parts::XattrOut},
    ops::{
        init::InitFlags,
        xattr::{GetxattrIn, SetxattrIn, SetxattrInCompat},
    },
};

use crate::{
    Errno, Platform,
    channel::{Sink, Source},
    session::{Caller, Head, Named, Plain, Session, is_list},
};

impl<P: Platform> Session<P> {
    /// Sets the attribute `name` of `node`. `flags` are those of setxattr(2); `setxattr_flags` is 0 or
    /// [`SETXATTR_ACL_KILL_SGID`](transom_wire::ops::xattr::SETXATTR_ACL_KILL_SGID), and is sent if SETXATTR_EXT is on.
    ///
    /// Errors: E2BIG for a value of more than 65536 bytes.
    pub fn setxattr(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        setxattr_flags: u32,
    ) -> Result<(), Errno> {
        check_name(name)?;
        if value.len() > XATTR_VALUE_LEN_MAX {
            return Err(Errno::TOOBIG);
        }
        let (size, flags) = ((value.len() as u32).into(), flags.into());
        let arg = SetxattrIn { size, flags, setxattr_flags: setxattr_flags.into(), padding: 0.into() };
        let mut head = match self.negotiated().flags.contains(InitFlags::SETXATTR_EXT) {
            true => Named::<Setxattr>::new(node, caller, &arg),
            false => Named::<Setxattr>::compat(node, caller, &SetxattrInCompat { size, flags }),
        };
        head.xattr_name(name);
        let known = self.if_known(Opcode::Setxattr, || self.ask_with(caller, &mut head, Source::Bytes(value)))?;
        known.ok_or(Errno::OPNOTSUPP)
    }

    /// Reads the attribute `name` of `node` into `value`. Returns its length; if `value` is empty, does nothing else.
    ///
    /// Errors: ENODATA if the attribute does not exist, ERANGE if the room is too small.
    pub fn getxattr(&self, caller: &Caller<'_>, node: NodeId, name: &[u8], value: &mut [u8]) -> Result<usize, Errno> {
        check_name(name)?;
        let room = value.len().min(XATTR_VALUE_LEN_MAX);
        let mut head = Named::<Getxattr>::new(node, caller, &getxattr_in(room));
        self.read_xattr(caller, head.xattr_name(name), &mut value[..room])
    }

    /// Reads the names of the attributes of `node` into `list`, each with its NUL. Returns their length; if `list` is
    /// empty, does nothing else.
    ///
    /// Errors: ERANGE if the room is too small.
    pub fn listxattr(&self, caller: &Caller<'_>, node: NodeId, list: &mut [u8]) -> Result<usize, Errno> {
        let room = list.len().min(XATTR_LIST_LEN_MAX);
        let mut head = Plain::<Listxattr>::new(node, caller, &getxattr_in(room));
        let len = self.read_xattr(caller, &mut head, &mut list[..room])?;
        if room > 0 && !is_list(&list[..len]) {
            return Err(self.impossible_eio());
        }
        Ok(len)
    }

    /// Removes the attribute `name` of `node`. Errors: ENODATA if the attribute does not exist.
    pub fn removexattr(&self, caller: &Caller<'_>, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        check_name(name)?;
        let mut head = Named::<Removexattr>::new(node, caller, &());
        self.ask_if_known(caller, head.xattr_name(name))?.ok_or(Errno::OPNOTSUPP)
    }

    fn read_xattr<O, const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<O, N>,
        room: &mut [u8],
    ) -> Result<usize, Errno>
    where
        O: Operation<Reply = XattrOut>,
    {
        if !room.is_empty() {
            let known = self.if_known(O::OPCODE, || self.fetch(caller, head, Sink::Bytes(room)))?;
            return known.ok_or(Errno::OPNOTSUPP);
        }
        let known = self.if_known(O::OPCODE, || self.measure(caller, head))?;
        let len = known.ok_or(Errno::OPNOTSUPP)?.size.get() as usize;
        if len <= XATTR_VALUE_LEN_MAX { Ok(len) } else { Err(self.impossible_eio()) }
    }
}

fn getxattr_in(room: usize) -> GetxattrIn {
    GetxattrIn { size: (room as u32).into(), padding: 0.into() }
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name.len() {
        1..=XATTR_NAME_LEN_MAX if !name.contains(&0) => Ok(()),
        0..=XATTR_NAME_LEN_MAX => Err(Errno::INVAL),
        _ => Err(Errno::RANGE),
    }
}
