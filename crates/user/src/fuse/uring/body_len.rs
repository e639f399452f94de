//! How much a reply has behind its header, as the kernel wants it.
//!
//! By `/dev/fuse` the kernel looks itself and fails the request with EIO. By a ring it looks as well, but fails it with EINVAL,
//! which a program would take for a fault of its own.
//! Source: `out_args` in linux/fs/fuse/{dir,file,inode,ioctl,readdir,xattr}.c.

use transom_wire::{
    Opcode,
    attr::{AttrOut, EntryOut},
    header::OutHeader,
    ops::{
        copy_file_range::CopyFileRangeOut, ioctl::IoctlOut, lk::LkOut, lseek::LseekOut, open::OpenOut, poll::PollOut,
        statfs::StatfsOut, statx::StatxOut, write::WriteOut, xattr::GetxattrOut,
    },
};

use crate::fuse::reply_room::ARGS_LEN;

/// `fuse_bmap_out`.
const BMAP_OUT_LEN: usize = 8;
/// A target with its NUL has 4096 bytes at most.
const TARGET_LEN_MAX: usize = 4095;
/// What fits into the room for the reply, which is as long as the request asks for.
const ROOM: usize = usize::MAX;

/// Bytes behind the header of a reply that is no error. An error has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BodyLen {
    min: usize,
    max: usize,
}

impl BodyLen {
    /// `args` are the first of the request's arguments, zeros behind them.
    pub(super) fn of(opcode: Option<Opcode>, args: &[u8; ARGS_LEN]) -> Self {
        use Opcode::*;
        // The kernel knows better what it has asked.
        let Some(opcode) = opcode else { return Self { min: 0, max: ROOM } };
        // `fuse_getxattr_in`: size.
        let asks_for_length = args[..4] == [0; 4];
        let (min, max) = match opcode {
            Read | Readdir | Readdirplus => (0, ROOM),
            Readlink => (0, TARGET_LEN_MAX),
            Getxattr | Listxattr if !asks_for_length => (0, ROOM),
            Ioctl => (size_of::<IoctlOut>(), ROOM),
            _ => {
                let len = Self::exact(opcode);
                (len, len)
            }
        };
        Self { min, max }
    }

    fn exact(opcode: Opcode) -> usize {
        use Opcode::*;
        match opcode {
            Lookup | Symlink | Mknod | Mkdir | Link => size_of::<EntryOut>(),
            Create | Tmpfile => size_of::<EntryOut>() + size_of::<OpenOut>(),
            Open | Opendir => size_of::<OpenOut>(),
            Getattr | Setattr => size_of::<AttrOut>(),
            Statx => size_of::<StatxOut>(),
            Write | CopyFileRange => size_of::<WriteOut>(),
            CopyFileRange64 => size_of::<CopyFileRangeOut>(),
            Getxattr | Listxattr => size_of::<GetxattrOut>(),
            Statfs => size_of::<StatfsOut>(),
            Getlk => size_of::<LkOut>(),
            Lseek => size_of::<LseekOut>(),
            Poll => size_of::<PollOut>(),
            Bmap => BMAP_OUT_LEN,
            _ => 0,
        }
    }

    /// Whether a reply with this header, which is at least as long as that, is of the length that it has to have.
    pub(super) fn is_that_of(self, header: &OutHeader) -> bool {
        let len = header.len.get() as usize - size_of::<OutHeader>();
        if header.error.get() == 0 { (self.min..=self.max).contains(&len) } else { len == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(opcode: Option<Opcode>, size: u8, error: i32, body_len: u32) -> bool {
        let mut args = [0; ARGS_LEN];
        args[0] = size;
        let header = OutHeader { len: (16 + body_len).into(), error: error.into(), unique: 2.into() };
        BodyLen::of(opcode, &args).is_that_of(&header)
    }

    #[test]
    fn a_reply_of_a_fixed_length_has_that_length_or_is_none() {
        for (opcode, len) in [(Opcode::Lookup, 128), (Opcode::Create, 144), (Opcode::Getattr, 104), (Opcode::Flush, 0)]
        {
            let taken = [len, len + 1, 0, 4096].map(|body_len| is_taken(Some(opcode), 0, 0, body_len));
            assert_eq!(taken, [true, false, len == 0, false], "{opcode:?}");
        }
    }

    #[test]
    fn data_is_as_long_as_there_is_room_for_or_shorter() {
        for opcode in [Opcode::Read, Opcode::Readdir, Opcode::Readdirplus] {
            assert!([0, 1, 1 << 20].iter().all(|&len| is_taken(Some(opcode), 0, 0, len)), "{opcode:?}");
        }
        let taken = [0, 8, 100].map(|len| [0, 1].map(|size| is_taken(Some(Opcode::Getxattr), size, 0, len)));
        assert_eq!(taken, [[false, true], [true, true], [false, true]]);
        assert_eq!([15, 16, 17].map(|len| is_taken(Some(Opcode::Ioctl), 0, 0, len)), [false, true, true]);
        assert_eq!([0, 4095, 4096].map(|len| is_taken(Some(Opcode::Readlink), 0, 0, len)), [true, true, false]);
    }

    #[test]
    fn an_error_has_nothing_behind_its_header() {
        for opcode in [Some(Opcode::Read), Some(Opcode::Lookup), Some(Opcode::Release), None] {
            assert!(is_taken(opcode, 0, -2, 0) && !is_taken(opcode, 0, -2, 1), "{opcode:?}");
        }
    }

    #[test]
    fn what_only_the_kernel_knows_is_for_the_kernel_to_judge() {
        assert!(is_taken(None, 0, 0, 0) && is_taken(None, 0, 0, 1 << 20));
    }
}
