//! System calls without a safe wrapper.

#![expect(unsafe_code, reason = "open_by_handle_at, setfsgid and the exchange are not in rustix")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use transom_wire::{
    NodeId,
    agent::{EXCHANGE, EXCHANGE_LEN, HANDLE_TYPE},
};

/// `struct file_handle` as `fs/fuse` encodes it: the nodeid's upper and lower half, and the generation.
#[repr(C)]
struct NodeHandle {
    handle_bytes: u32,
    handle_type: i32,
    words: [u32; 3],
}

/// Opens the inode `nodeid` of the share mounted at `root`, without asking the daemon. Its generation is 0, as
/// transomd's all are.
///
/// # Errors
///
/// ESTALE if this kernel does not know the inode, EPERM without CAP_DAC_READ_SEARCH.
pub(crate) fn open_node(root: impl AsFd, nodeid: NodeId, flags: libc::c_int) -> io::Result<OwnedFd> {
    let mut handle = NodeHandle {
        handle_bytes: size_of::<[u32; 3]>() as u32,
        handle_type: HANDLE_TYPE,
        words: [(nodeid.0 >> 32) as u32, nodeid.0 as u32, 0],
    };
    // SAFETY: `handle` begins as `struct file_handle` does, followed by the 12 bytes that it states.
    let fd = unsafe { libc::open_by_handle_at(root.as_fd().as_raw_fd(), (&raw mut handle).cast(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened `fd` for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the nodeid of a file, which the kernel knows without a request.
///
/// # Errors
///
/// EOPNOTSUPP if the kernel's handles have another form.
pub(crate) fn node_of(file: impl AsFd) -> io::Result<NodeId> {
    let len = size_of::<[u32; 3]>() as u32;
    let mut handle = NodeHandle { handle_bytes: len, handle_type: 0, words: [0; 3] };
    let mut mount_id: libc::c_int = 0;
    // SAFETY:
    // 1. The name is a constant with its NUL.
    // 2. `handle` begins as `struct file_handle` does, followed by the 12 bytes that it states.
    // 3. `mount_id` is an int of ours, as the call requires without AT_HANDLE_MNT_ID_UNIQUE.
    let result = unsafe {
        libc::name_to_handle_at(
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if (handle.handle_bytes, handle.handle_type) != (len, HANDLE_TYPE) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(NodeId(u64::from(handle.words[0]) << 32 | u64::from(handle.words[1])))
}

/// Sets the group that this thread's requests carry. Errors: EPERM without CAP_SETGID.
pub(crate) fn set_request_group(gid: u32) -> io::Result<()> {
    // SAFETY: the call takes and returns numbers. It reports failure only by what a second call returns, for which an
    // invalid group changes nothing.
    let now = unsafe {
        libc::setfsgid(gid);
        libc::setfsgid(u32::MAX)
    };
    if now.cast_unsigned() == gid { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// Exchanges one message with the daemon. Blocks for up to 250 ms.
pub(crate) fn exchange(root: impl AsFd, argument: &mut [u8; EXCHANGE_LEN]) -> io::Result<()> {
    // SAFETY: the number encodes that the kernel reads and writes EXCHANGE_LEN bytes, which `argument` has.
    let result = unsafe { libc::ioctl(root.as_fd().as_raw_fd(), EXCHANGE as libc::Ioctl, argument.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
