//! The writer of the newc cpio archives that Linux unpacks as its first file system.
//!
//! Entries are owned by root and dated 1970. Format: the kernel's `Documentation/driver-api/early-userspace/
//! buffer-format.rst`.

use std::{collections::HashSet, io};

const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_FILE: u32 = 0o100_000;
const MODE_LINK: u32 = 0o120_000;
const MODE_CHARACTER_DEVICE: u32 = 0o020_000;

/// Writes entries one after the other; the folders above each are made as needed.
pub(super) struct Archive<W> {
    out: W,
    folders: HashSet<String>,
    next_inode: u32,
}

/// The fields of a header that differ from entry to entry.
struct Entry<'a> {
    path: &'a str,
    mode: u32,
    device: (u32, u32),
    data: &'a [u8],
}

impl<W: io::Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, folders: HashSet::new(), next_inode: 1 }
    }

    /// Adds a folder and those above it.
    pub(super) fn folder(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above)?;
        }
        self.folders.insert(path.to_owned());
        self.entry(&Entry { path, mode: MODE_DIRECTORY | 0o755, device: (0, 0), data: &[] })
    }

    /// Adds a file with these permissions.
    pub(super) fn file(&mut self, path: &str, permissions: u32, data: &[u8]) -> io::Result<()> {
        self.below_folder(&Entry { path, mode: MODE_FILE | permissions, device: (0, 0), data })
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.below_folder(&Entry { path, mode: MODE_LINK | 0o777, device: (0, 0), data: target.as_bytes() })
    }

    /// Adds a character device.
    pub(super) fn device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.below_folder(&Entry { path, mode: MODE_CHARACTER_DEVICE | 0o600, device: (major, minor), data: &[] })
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry(&Entry { path: "TRAILER!!!", mode: 0, device: (0, 0), data: &[] })?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn below_folder(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        if let Some((above, _)) = entry.path.trim_matches('/').rsplit_once('/') {
            self.folder(above)?;
        }
        self.entry(entry)
    }

    fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let path = entry.path.trim_matches('/');
        let size = u32::try_from(entry.data.len())
            .map_err(|_| io::Error::other(format!("{path}: {} bytes do not fit an entry", entry.data.len())))?;
        let (major, minor) = entry.device;
        let name_size = path.len() as u32 + 1;
        // inode, mode, uid, gid, links, mtime, size, device of the file system (2), device (2), name size, checksum
        let fields = [self.next_inode, entry.mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
        self.next_inode += 1;

        let mut header = String::with_capacity(110 + path.len() + 4);
        header.push_str("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        header.push_str(path);
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(entry.data)
    }

    /// Writes `bytes`, which start at a multiple of four, and fills up to the next one.
    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One entry as read back: path, mode, device, data.
    type Read = (String, u32, (u32, u32), Vec<u8>);

    /// An independent reading of the format: headers of 13 hexadecimal fields, name and data each to four bytes.
    fn read(mut archive: &[u8]) -> Vec<Read> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(&archive[..6], b"070701");
            let field = |n: usize| {
                u32::from_str_radix(std::str::from_utf8(&archive[6 + 8 * n..14 + 8 * n]).unwrap(), 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let device = (field(9), field(10));
            let name = String::from_utf8(archive[110..110 + name_size - 1].to_vec()).unwrap();
            let start = (110 + name_size).next_multiple_of(4);
            let data = archive[start..start + size].to_vec();
            archive = &archive[(start + size).next_multiple_of(4)..];
            if name == "TRAILER!!!" {
                assert!(archive.is_empty());
                return entries;
            }
            entries.push((name, mode, device, data));
        }
    }

    #[test]
    fn an_archive_reads_back_with_folders_before_their_content() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/lib/modules/a.ko", 0o644, b"12345").unwrap();
        archive.file("lib/modules/b.ko", 0o644, b"").unwrap();
        archive.link("/bin/sh", "busybox").unwrap();
        archive.device("/dev/console", 5, 1).unwrap();
        let entries = read(&archive.finish().unwrap());

        let names: Vec<_> = entries.iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(
            names,
            ["lib", "lib/modules", "lib/modules/a.ko", "lib/modules/b.ko", "bin", "bin/sh", "dev", "dev/console"]
        );
        assert_eq!(entries[2].1, 0o100_644);
        assert_eq!(entries[2].3, b"12345");
        assert_eq!(entries[5], ("bin/sh".into(), 0o120_777, (0, 0), b"busybox".to_vec()));
        assert_eq!(entries[7].2, (5, 1));
    }
}
