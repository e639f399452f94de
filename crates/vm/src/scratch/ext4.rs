//! Makes an empty ext4 file system, without `mkfs`, which not every machine has.
//!
//! It is the smallest that Linux takes: no journal, since nothing outlives the guest, no copies of the superblock, and
//! block groups that the kernel fills in when it first uses them. So little is written, whatever the size.
//! The layout is that of Documentation/filesystems/ext4 in the kernel's source; offsets are those of its tables.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::rand::{GetRandomFlags, getrandom};

/// Two blocks of metadata would be most of a smaller one.
pub(super) const LEN_MIN: u64 = 16 << 20;
/// Numbers of blocks have 32 bits.
pub(super) const LEN_MAX: u64 = 8 << 40;

const BLOCK_LEN: usize = 4096;
const GROUP_BLOCKS: u32 = 8 * BLOCK_LEN as u32;
/// One for 16 KiB, as `mkfs` has it.
const GROUP_INODES: u32 = 8192;
const INODE_LEN: usize = 256;
const TABLE_BLOCKS: u32 = GROUP_INODES * INODE_LEN as u32 / BLOCK_LEN as u32;
/// Its two bitmaps and its inode table: what each group consists of beside its data.
const GROUP_OVERHEAD: u32 = 2 + TABLE_BLOCKS;
/// A last group with fewer blocks is left out.
const LAST_GROUP_MIN: u32 = 2 * GROUP_OVERHEAD;
const DESCRIPTOR_LEN: usize = 32;

const ROOT: u32 = 2;
/// The first inode that is not reserved.
const LOST_AND_FOUND: u32 = 11;

/// Extended attributes, hashed directories, and places for copies of the superblock by their number (none).
const COMPAT: u32 = 0x8 | 0x20 | 0x200;
/// Kinds of files in directories; extents.
const INCOMPAT: u32 = 0x2 | 0x40;
/// Large files, huge ones, checksums of descriptors, many subdirectories, inodes longer than 128 bytes.
const RO_COMPAT: u32 = 0x2 | 0x8 | 0x10 | 0x20 | 0x40;

const INODES_UNUSED: u16 = 1;
const BLOCKS_UNUSED: u16 = 2;
const TABLE_IS_ZERO: u16 = 4;

/// A part of the file system that is being made.
struct Bytes(Vec<u8>);

impl Bytes {
    fn zeros(len: usize) -> Self {
        Self(vec![0; len])
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets the bits `from..to`, counted from the lowest one of the first byte.
    fn set_bits(&mut self, from: u32, to: u32) {
        (from..to).for_each(|bit| self.0[bit as usize / 8] |= 1 << (bit % 8));
    }
}

/// The numbers of a file system.
struct Shape {
    blocks: u32,
    groups: u32,
    descriptor_blocks: u32,
}

impl Shape {
    fn of(len_bytes: u64) -> io::Result<Self> {
        let blocks = u32::try_from(len_bytes / BLOCK_LEN as u64).map_err(io::Error::other)?;
        let last = blocks % GROUP_BLOCKS;
        let blocks = if last < LAST_GROUP_MIN && blocks > GROUP_BLOCKS { blocks - last } else { blocks };
        let groups = blocks.div_ceil(GROUP_BLOCKS);
        Ok(Self { blocks, groups, descriptor_blocks: (groups * DESCRIPTOR_LEN as u32).div_ceil(BLOCK_LEN as u32) })
    }

    fn blocks_of(&self, group: u32) -> u32 {
        GROUP_BLOCKS.min(self.blocks - group * GROUP_BLOCKS)
    }

    /// Returns the first block of a group after the superblock and the descriptors: its bitmaps and table begin there.
    fn first_own(&self, group: u32) -> u32 {
        group * GROUP_BLOCKS + if group == 0 { 1 + self.descriptor_blocks } else { 0 }
    }

    /// Returns the blocks of the two directories.
    fn directories(&self) -> [u32; 2] {
        let first = self.first_own(0) + GROUP_OVERHEAD;
        [first, first + 1]
    }

    fn free_blocks(&self, group: u32) -> u32 {
        match group {
            0 => self.blocks_of(0) - self.directories()[1] - 1,
            _ => self.blocks_of(group) - GROUP_OVERHEAD,
        }
    }

    /// Returns whether the bitmap of blocks of a group is written: those of the first group, and of the last one, which
    /// may be shorter.
    fn has_bitmap(&self, group: u32) -> bool {
        group == 0 || group + 1 == self.groups
    }

    fn free_inodes(group: u32) -> u32 {
        if group == 0 { GROUP_INODES - LOST_AND_FOUND } else { GROUP_INODES }
    }
}

/// Makes the file system in an empty file, which gets its length.
pub(super) fn format(file: &File, len_bytes: u64) -> io::Result<()> {
    let shape = Shape::of(len_bytes)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_secs() as u32;
    let mut random = [0; 32];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let (uuid, hash_seed) = random.split_at(16);

    file.set_len(u64::from(shape.blocks) * BLOCK_LEN as u64)?;
    let write = |block: u32, bytes: &Bytes| file.write_all_at(&bytes.0, u64::from(block) * BLOCK_LEN as u64);
    let mut first = Bytes::zeros(BLOCK_LEN);
    first.put(1024, &superblock(&shape, now, uuid, hash_seed).0);
    write(0, &first)?;
    write(1, &descriptors(&shape, uuid))?;

    let bitmaps = shape.first_own(0);
    let [root, lost_and_found] = shape.directories();
    for group in (0..shape.groups).filter(|&group| shape.has_bitmap(group)) {
        let mut used = Bytes::zeros(BLOCK_LEN);
        used.set_bits(0, shape.blocks_of(group) - shape.free_blocks(group));
        used.set_bits(shape.blocks_of(group), GROUP_BLOCKS);
        write(shape.first_own(group), &used)?;
    }
    let mut used = Bytes::zeros(BLOCK_LEN);
    used.set_bits(0, LOST_AND_FOUND);
    used.set_bits(GROUP_INODES, GROUP_BLOCKS);
    write(bitmaps + 1, &used)?;

    let mut table = Bytes::zeros(BLOCK_LEN);
    for (inode, block, links) in [(ROOT, root, 3), (LOST_AND_FOUND, lost_and_found, 2)] {
        table.put((inode as usize - 1) * INODE_LEN, &directory_inode(block, links, now).0);
    }
    write(bitmaps + 2, &table)?;
    write(root, &directory(&[(ROOT, "."), (ROOT, ".."), (LOST_AND_FOUND, "lost+found")]))?;
    write(lost_and_found, &directory(&[(LOST_AND_FOUND, "."), (ROOT, "..")]))
}

fn superblock(shape: &Shape, now: u32, uuid: &[u8], hash_seed: &[u8]) -> Bytes {
    let mut bytes = Bytes::zeros(1024);
    bytes.u32(0x00, shape.groups * GROUP_INODES);
    bytes.u32(0x04, shape.blocks);
    bytes.u32(0x0c, (0..shape.groups).map(|group| shape.free_blocks(group)).sum());
    bytes.u32(0x10, (0..shape.groups).map(Shape::free_inodes).sum());
    // Blocks of 1024 << 2 bytes, of which the first is number 0.
    bytes.u32(0x18, 2);
    bytes.u32(0x1c, 2);
    bytes.u32(0x20, GROUP_BLOCKS);
    bytes.u32(0x24, GROUP_BLOCKS);
    bytes.u32(0x28, GROUP_INODES);
    bytes.u32(0x30, now);
    // It is never checked for its age.
    bytes.u16(0x36, u16::MAX);
    bytes.u16(0x38, 0xef53);
    // Clean; goes on after errors; the revision with features.
    bytes.u16(0x3a, 1);
    bytes.u16(0x3c, 1);
    bytes.u32(0x40, now);
    bytes.u32(0x4c, 1);
    bytes.u32(0x54, LOST_AND_FOUND);
    bytes.u16(0x58, INODE_LEN as u16);
    bytes.u32(0x5c, COMPAT);
    bytes.u32(0x60, INCOMPAT);
    bytes.u32(0x64, RO_COMPAT);
    bytes.put(0x68, uuid);
    bytes.put(0xec, hash_seed);
    // Names are hashed by half MD4, of bytes that are signed.
    bytes.put(0xfc, &[1]);
    bytes.u32(0x160, 1);
    // Extended attributes and access control lists are on.
    bytes.u32(0x100, 0x4 | 0x8);
    bytes.u32(0x108, now);
    bytes.u16(0x15c, 32);
    bytes.u16(0x15e, 32);
    bytes
}

fn descriptors(shape: &Shape, uuid: &[u8]) -> Bytes {
    let mut all = Bytes::zeros(shape.descriptor_blocks as usize * BLOCK_LEN);
    for group in 0..shape.groups {
        let own = shape.first_own(group);
        let mut bytes = Bytes::zeros(DESCRIPTOR_LEN);
        for (at, block) in [(0x0, own), (0x4, own + 1), (0x8, own + 2)] {
            bytes.u32(at, block);
        }
        bytes.u16(0xc, shape.free_blocks(group) as u16);
        bytes.u16(0xe, Shape::free_inodes(group) as u16);
        bytes.u16(0x10, if group == 0 { 2 } else { 0 });
        let inodes = if group == 0 { 0 } else { INODES_UNUSED };
        let blocks = if shape.has_bitmap(group) { 0 } else { BLOCKS_UNUSED };
        bytes.u16(0x12, TABLE_IS_ZERO | inodes | blocks);
        bytes.u16(0x1c, Shape::free_inodes(group) as u16);
        let checksum = [uuid, &group.to_le_bytes(), &bytes.0[..0x1e]].concat();
        bytes.u16(0x1e, crc16(&checksum));
        all.put(group as usize * DESCRIPTOR_LEN, &bytes.0);
    }
    all
}

/// CRC-16 with the polynomial 0x8005, reflected, and all bits set at the start.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(u16::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0xa001 })
    })
}

/// Returns the inode of a directory of one block.
fn directory_inode(block: u32, links: u16, now: u32) -> Bytes {
    let mut bytes = Bytes::zeros(INODE_LEN);
    bytes.u16(0x0, 0o040_755);
    bytes.u32(0x4, BLOCK_LEN as u32);
    [0x8, 0xc, 0x10].into_iter().for_each(|at| bytes.u32(at, now));
    bytes.u16(0x1a, links);
    bytes.u32(0x1c, BLOCK_LEN as u32 / 512);
    // Extents: a header with one of at most four, and it is the block.
    bytes.u32(0x20, 0x8_0000);
    bytes.u16(0x28, 0xf30a);
    bytes.u16(0x2a, 1);
    bytes.u16(0x2c, 4);
    bytes.u16(0x38, 1);
    bytes.u32(0x3c, block);
    bytes.u16(0x80, 32);
    bytes
}

/// Returns the block of a directory with these subdirectories, of which the last takes the rest of the block.
fn directory(entries: &[(u32, &str)]) -> Bytes {
    let mut bytes = Bytes::zeros(BLOCK_LEN);
    let mut at = 0;
    for (number, (inode, name)) in entries.iter().enumerate() {
        let is_last = number + 1 == entries.len();
        let len = if is_last { BLOCK_LEN - at } else { (8 + name.len()).next_multiple_of(4) };
        bytes.u32(at, *inode);
        bytes.u16(at + 4, len as u16);
        bytes.put(at + 6, &[name.len() as u8, 2]);
        bytes.put(at + 8, name.as_bytes());
        at += len;
    }
    bytes
}

#[cfg(test)]
#[path = "ext4_test.rs"]
mod tests;
