//! Extended attributes. Names and lists are as in xattr(7); errors are those of [`ops`](crate::ops).

use super::{Inode, Volume};
use crate::{
    Errno, Platform,
    session::{Caller, RaisedSlots},
};

impl<P: Platform> Volume<P> {
    /// Reads the attribute `name` into `value`. Returns its length; if `value` is empty, does nothing else.
    pub fn getxattr(
        &self,
        caller: &Caller<'_>,
        inode: &Inode<P>,
        name: &[u8],
        value: &mut [u8],
    ) -> Result<usize, Errno> {
        self.session().getxattr(caller, inode.nodeid(), name, value)
    }

    /// Reads the names, each with its NUL, into `list`. Returns their length; if `list` is empty, does nothing else.
    pub fn listxattr(&self, caller: &Caller<'_>, inode: &Inode<P>, list: &mut [u8]) -> Result<usize, Errno> {
        self.session().listxattr(caller, inode.nodeid(), list)
    }

    /// Sets the attribute `name`; `flags` are those of setxattr(2), `setxattr_flags` those of
    /// [`Session::setxattr`](crate::session::Session::setxattr). Setting an access control list may also change the
    /// mode.
    pub fn setxattr(
        &self,
        caller: &Caller<'_>,
        inode: &Inode<P>,
        name: &[u8],
        value: &[u8],
        flags: u32,
        setxattr_flags: u32,
    ) -> Result<(), Errno> {
        inode.changed();
        inode.rights_are_set();
        let raised = RaisedSlots::default();
        let result =
            self.session().setxattr(&caller.noting(&raised), inode.nodeid(), name, value, flags, setxattr_flags);
        inode.changed();
        inode.account_for(&raised);
        result
    }

    /// Removes the attribute `name`.
    pub fn removexattr(&self, caller: &Caller<'_>, inode: &Inode<P>, name: &[u8]) -> Result<(), Errno> {
        inode.changed();
        let raised = RaisedSlots::default();
        let result = self.session().removexattr(&caller.noting(&raised), inode.nodeid(), name);
        inode.changed();
        inode.account_for(&raised);
        result
    }
}
