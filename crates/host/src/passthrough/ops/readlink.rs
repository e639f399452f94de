//! READLINK.

use rustix::fs::FileType;
use transom_wire::operation::Readlink;

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
    sysfd::path,
};

impl Serve<Readlink> for Passthrough {
    /// # Errors
    ///
    /// EINVAL if the inode is not a symbolic link.
    fn serve(&self, call: Call<'_, Readlink>) -> Result<Vec<u8>, Errno> {
        let inode = self.inodes.get(call.nodeid)?;
        if inode.file_type == FileType::Symlink { path::readlink(&inode.fd) } else { Err(Errno::INVAL) }
    }
}
