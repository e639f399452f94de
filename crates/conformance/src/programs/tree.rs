//! The tree that every program begins with, and who its callers are.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
};

use anyhow::Context as _;

/// The ordinary user, and the only group he is in.
pub(super) const USER: u32 = 65534;

/// A group that the ordinary user is not in.
pub(super) const GROUP: u32 = 65533;

/// The directory of races, which is not compared: names of the host's come and go in it.
pub(super) const RACES: &str = "races";

/// The names that programs use, directories first.
pub(super) const NAMES: [&str; 17] = [
    "sticky",
    "grouped",
    "closed",
    "own-dir",
    "public",
    "private",
    "own",
    "tool",
    "new",
    "sticky/roots",
    "sticky/users",
    "sticky/new",
    "grouped/new",
    "closed/public",
    "own-dir/public",
    "own-dir/new",
    "own-dir/dir",
];

/// Those of [`NAMES`] that begin as directories.
pub(super) const DIRECTORIES: std::ops::Range<u8> = 0..4;

/// Those of [`NAMES`] that begin as regular files.
pub(super) const FILES: [u8; 8] = [4, 5, 6, 7, 9, 10, 13, 14];

/// The file that [`REPORTER`] is in: root's, with set-id bits, and writable for all.
pub(super) const TOOL: u8 = 7;

/// The file that anybody may read and write.
pub(super) const PUBLIC: u8 = 4;

/// A static executable for x86-64 whose exit status is the lowest three bits of its effective user and group; others
/// refuse it with ENOEXEC, which is as good for what is checked before that.
pub(super) const REPORTER: [u8; 157] = {
    const CODE: [u8; 37] = [
        0xb8, 0x6b, 0x00, 0x00, 0x00, // mov eax, 107 (geteuid)
        0x0f, 0x05, // syscall
        0x89, 0xc3, // mov ebx, eax
        0xb8, 0x6c, 0x00, 0x00, 0x00, // mov eax, 108 (getegid)
        0x0f, 0x05, // syscall
        0x83, 0xe0, 0x07, // and eax, 7
        0xc1, 0xe0, 0x03, // shl eax, 3
        0x83, 0xe3, 0x07, // and ebx, 7
        0x09, 0xd8, // or eax, ebx
        0x89, 0xc7, // mov edi, eax
        0x6a, 0x3c, 0x58, // push 60; pop rax (exit)
        0x0f, 0x05, // syscall
        0x0f, 0x0b, // ud2
        0x90, // nop
    ];
    // The header of the file and of its one segment, which is the whole file at 0x400000.
    const HEAD: [u8; 120] = {
        let mut head = [0; 120];
        let fields: [(usize, u64, usize); 19] = [
            (0, 0x0001_0102_464c_457f, 8), // ELF, 64 bits, little-endian, version 1
            (16, 2, 2),                    // an executable
            (18, 62, 2),                   // x86-64
            (20, 1, 4),                    // version
            (24, 0x40_0078, 8),            // entry
            (32, 64, 8),                   // segments' headers
            (52, 64, 2),                   // size of this header
            (54, 56, 2),                   // size of a segment's
            (56, 1, 2),                    // segments
            (58, 64, 2),                   // size of a section's
            (64, 1, 4),                    // loaded
            (68, 5, 4),                    // read and executed
            (72, 0, 8),                    // from the beginning
            (80, 0x40_0000, 8),            // to this address
            (88, 0x40_0000, 8),
            (96, 157, 8),
            (104, 157, 8),
            (112, 0x1000, 8),
            (119, 0, 1),
        ];
        let mut index = 0;
        while index < fields.len() {
            let (offset, value, len) = fields[index];
            let mut byte = 0;
            while byte < len {
                head[offset + byte] = value.to_le_bytes()[byte];
                byte += 1;
            }
            index += 1;
        }
        head
    };
    let mut program = [0; 157];
    let mut index = 0;
    while index < program.len() {
        program[index] = if index < HEAD.len() { HEAD[index] } else { CODE[index - HEAD.len()] };
        index += 1;
    }
    program
};

/// Makes the tree in `dir`, which exists, as root.
pub(super) fn plant(dir: &Path) -> anyhow::Result<()> {
    let owned = |name: &str, uid, gid, mode| {
        let path = dir.join(name);
        chown(&path, Some(uid), Some(gid)).with_context(|| format!("chown {}", path.display()))?;
        // After chown(2), which drops set-id bits.
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("chmod {}", path.display()))
    };
    let directory = |name: &str, uid, gid, mode| {
        fs::create_dir(dir.join(name)).with_context(|| format!("mkdir {name}"))?;
        owned(name, uid, gid, mode)
    };
    let file = |name: &str, uid, gid, mode| {
        let content: &[u8] = if name == NAMES[usize::from(TOOL)] { &REPORTER } else { b"content" };
        fs::write(dir.join(name), content).with_context(|| format!("writing {name}"))?;
        owned(name, uid, gid, mode)
    };
    owned("", 0, 0, 0o777)?;
    directory(RACES, 0, 0, 0o777)?;
    directory("sticky", 0, 0, 0o1777)?;
    directory("grouped", 0, GROUP, 0o2777)?;
    directory("closed", 0, 0, 0o755)?;
    directory("own-dir", USER, USER, 0o755)?;
    file("public", 0, 0, 0o666)?;
    file("private", 0, 0, 0o600)?;
    file("own", USER, USER, 0o644)?;
    file("tool", 0, 0, 0o6777)?;
    file("sticky/roots", 0, 0, 0o666)?;
    file("sticky/users", USER, GROUP, 0o644)?;
    file("closed/public", 0, GROUP, 0o646)?;
    file("own-dir/public", 0, 0, 0o644)
}
