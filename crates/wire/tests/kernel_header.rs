//! Checks that every structure has the size and the offsets of the kernel's own header, as the C compiler sees them.

use std::{fmt::Write as _, fs, mem::offset_of, process::Command};

use transom_wire::{attr::*, dirent::*, extension::*, header::*, ops::*};

/// Lists `C struct, our type: field field …` as (C expression, our number).
macro_rules! layout {
    ($($c:literal $ours:ty: $($field:ident)*;)*) => {
        vec![$(
            (format!("sizeof(struct {})", $c), size_of::<$ours>()),
            $((
                format!("offsetof(struct {}, {})", $c, stringify!($field).trim_end_matches('_')),
                offset_of!($ours, $field),
            ),)*
        )*]
    };
}

fn layouts() -> Vec<(String, usize)> {
    layout! {
        "fuse_in_header" InHeader: len opcode unique nodeid uid gid pid;
        "fuse_out_header" OutHeader: len error unique;
        "fuse_attr" Attr: ino size blocks atime mtime ctime atimensec mtimensec ctimensec mode nlink uid gid
            rdev blksize flags;
        "fuse_entry_out" EntryOut: nodeid generation entry_valid attr_valid entry_valid_nsec attr_valid_nsec attr;
        "fuse_attr_out" AttrOut: attr_valid attr_valid_nsec attr;
        "fuse_dirent" Dirent: ino off namelen type_;
        "fuse_direntplus" DirentPlus:;
        "fuse_secctx" Secctx: size;
        "fuse_forget_in" forget::ForgetIn: nlookup;
        "fuse_batch_forget_in" forget::BatchForgetIn: count;
        "fuse_forget_one" forget::ForgetOne: nodeid nlookup;
        "fuse_getattr_in" getattr::GetattrIn: getattr_flags fh;
        "fuse_setattr_in" setattr::SetattrIn: valid fh size lock_owner atime mtime ctime atimensec mtimensec ctimensec
            mode uid gid;
        "fuse_mknod_in" mknod::MknodIn: mode rdev umask;
        "fuse_mkdir_in" mkdir::MkdirIn: mode umask;
        "fuse_rename_in" rename::RenameIn: newdir;
        "fuse_rename2_in" rename::Rename2In: newdir flags;
        "fuse_link_in" link::LinkIn: oldnodeid;
        "fuse_open_in" open::OpenIn: flags open_flags;
        "fuse_open_out" open::OpenOut: fh open_flags;
        "fuse_create_in" create::CreateIn: flags mode umask open_flags;
        "fuse_read_in" read::ReadIn: fh offset size read_flags lock_owner flags;
        "fuse_write_in" write::WriteIn: fh offset size write_flags lock_owner flags;
        "fuse_write_out" write::WriteOut: size;
        "fuse_kstatfs" statfs::StatfsOut: blocks bfree bavail files ffree bsize namelen frsize;
        "fuse_release_in" release::ReleaseIn: fh flags release_flags lock_owner;
        "fuse_fsync_in" fsync::FsyncIn: fh fsync_flags;
        "fuse_setxattr_in" xattr::SetxattrIn: size flags setxattr_flags;
        "fuse_getxattr_in" xattr::GetxattrIn: size;
        "fuse_getxattr_out" xattr::GetxattrOut: size;
        "fuse_flush_in" flush::FlushIn: fh lock_owner;
        "fuse_file_lock" lk::FileLock: start end type_ pid;
        "fuse_lk_in" lk::LkIn: fh owner lk lk_flags;
        "fuse_lk_out" lk::LkOut: lk;
        "fuse_access_in" access::AccessIn: mask;
        "fuse_interrupt_in" interrupt::InterruptIn: unique;
        "fuse_fallocate_in" fallocate::FallocateIn: fh offset length mode;
        "fuse_lseek_in" lseek::LseekIn: fh offset whence;
        "fuse_lseek_out" lseek::LseekOut: offset;
        "fuse_copy_file_range_in" copy_file_range::CopyFileRangeIn: fh_in off_in nodeid_out fh_out off_out len flags;
        "fuse_syncfs_in" syncfs::SyncfsIn: padding;
        "fuse_ioctl_in" ioctl::IoctlIn: fh flags cmd arg in_size out_size;
        "fuse_ioctl_out" ioctl::IoctlOut: result flags in_iovs out_iovs;
        "fuse_poll_in" poll::PollIn: fh kh flags events;
        "fuse_poll_out" poll::PollOut: revents;
        "fuse_setupmapping_in" setupmapping::SetupmappingIn: fh foffset len flags moffset;
        "fuse_removemapping_in" removemapping::RemovemappingIn: count;
        "fuse_removemapping_one" removemapping::RemovemappingOne: moffset len;
        "fuse_init_in" init::InitIn: major minor max_readahead flags flags2;
        "fuse_init_out" init::InitOut: major minor max_readahead flags max_background congestion_threshold max_write
            time_gran max_pages map_alignment flags2;
    }
}

#[test]
fn structures_are_laid_out_as_in_the_kernels_header() {
    let layouts = layouts();
    let mut source = String::from("#include <stddef.h>\n#include <stdint.h>\n#include <linux/fuse.h>\n");
    for (expression, ours) in &layouts {
        writeln!(source, "_Static_assert({expression} == {ours}, \"{expression} is not {ours}\");").unwrap();
    }
    let dir = std::env::temp_dir().join(format!("transom-wire-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("layout.c");
    fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").args(["-fsyntax-only", "-x", "c"]).arg(&file).output();
    fs::remove_dir_all(&dir).unwrap();
    match compiled {
        Err(error) => println!("SKIPPED: no C compiler: {error}"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            if text.contains("linux/fuse.h: No such file") {
                println!("SKIPPED: the kernel's headers are not installed");
            } else {
                assert!(output.status.success(), "{text}");
            }
        }
    }
}
