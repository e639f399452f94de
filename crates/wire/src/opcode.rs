//! The operations of FUSE, by number.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// An operation (`enum fuse_opcode`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[allow(missing_docs, reason = "the names are the specification's")]
        pub enum Opcode { $($(#[$doc])* $name = $number,)* }

        impl Opcode {
            /// Every operation, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The operation with this number, if there is one.
            pub const fn from_u32(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The operation's name in lower case, as it stands in metrics and logs.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

opcodes! {
    Lookup = 1, "lookup";
    Forget = 2, "forget";
    Getattr = 3, "getattr";
    Setattr = 4, "setattr";
    Readlink = 5, "readlink";
    Symlink = 6, "symlink";
    Mknod = 8, "mknod";
    Mkdir = 9, "mkdir";
    Unlink = 10, "unlink";
    Rmdir = 11, "rmdir";
    Rename = 12, "rename";
    Link = 13, "link";
    Open = 14, "open";
    Read = 15, "read";
    Write = 16, "write";
    Statfs = 17, "statfs";
    Release = 18, "release";
    Fsync = 20, "fsync";
    Setxattr = 21, "setxattr";
    Getxattr = 22, "getxattr";
    Listxattr = 23, "listxattr";
    Removexattr = 24, "removexattr";
    Flush = 25, "flush";
    Init = 26, "init";
    Opendir = 27, "opendir";
    Readdir = 28, "readdir";
    Releasedir = 29, "releasedir";
    Fsyncdir = 30, "fsyncdir";
    Getlk = 31, "getlk";
    Setlk = 32, "setlk";
    Setlkw = 33, "setlkw";
    Access = 34, "access";
    Create = 35, "create";
    Interrupt = 36, "interrupt";
    Bmap = 37, "bmap";
    Destroy = 38, "destroy";
    Ioctl = 39, "ioctl";
    Poll = 40, "poll";
    NotifyReply = 41, "notify_reply";
    BatchForget = 42, "batch_forget";
    Fallocate = 43, "fallocate";
    Readdirplus = 44, "readdirplus";
    Rename2 = 45, "rename2";
    Lseek = 46, "lseek";
    CopyFileRange = 47, "copy_file_range";
    Setupmapping = 48, "setupmapping";
    Removemapping = 49, "removemapping";
    Syncfs = 50, "syncfs";
    Tmpfile = 51, "tmpfile";
    Statx = 52, "statx";
    CopyFileRange64 = 53, "copy_file_range_64";
}

impl Opcode {
    /// True for the operations that are answered with nothing, not even an error.
    pub const fn has_no_reply(self) -> bool {
        matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt | Self::NotifyReply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_operations_agree() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_u32(opcode as u32), Some(opcode));
        }
        assert_eq!(Opcode::from_u32(0), None);
        assert_eq!(Opcode::from_u32(7), None);
        assert_eq!(Opcode::from_u32(19), None);
        assert_eq!(Opcode::from_u32(u32::MAX), None);
    }
}
