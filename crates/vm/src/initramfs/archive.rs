//! The writer of the newc cpio archive that Linux unpacks as its first file system.
//!
//! Entries belong to root and are dated 1970. The folders above an entry are added as needed.

use std::{collections::HashSet, io};

use cpio::newc::{Builder, ModeFileType, trailer};

/// An archive to which entries are appended.
pub(super) struct Archive<W> {
    out: W,
    folders: HashSet<String>,
    next_inode: u32,
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
        self.folders.insert(path.to_owned());
        self.entry(Builder::new(path).mode(0o755).set_mode_file_type(ModeFileType::Directory), path, &[])
    }

    /// Adds a file with these permissions.
    pub(super) fn file(&mut self, path: &str, permissions: u32, data: &[u8]) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.entry(Builder::new(path).mode(permissions).set_mode_file_type(ModeFileType::Regular), path, data)
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        let link = Builder::new(path).mode(0o777).set_mode_file_type(ModeFileType::Symlink);
        self.entry(link, path, target.as_bytes())
    }

    /// Adds a character device.
    pub(super) fn device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        let path = path.trim_matches('/');
        let device = Builder::new(path).mode(0o600).set_mode_file_type(ModeFileType::Char);
        self.entry(device.rdev_major(major).rdev_minor(minor), path, &[])
    }

    /// Ends the archive and returns the writer.
    pub(super) fn finish(self) -> io::Result<W> {
        let mut out = trailer(self.out)?;
        out.flush()?;
        Ok(out)
    }

    fn entry(&mut self, header: Builder, path: &str, data: &[u8]) -> io::Result<()> {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above)?;
        }
        let len = u32::try_from(data.len())
            .map_err(|_| io::Error::other(format!("{path}: {} bytes do not fit into an entry", data.len())))?;
        let mut entry = header.ino(self.next_inode).write(&mut self.out, len);
        self.next_inode += 1;
        io::Write::write_all(&mut entry, data)?;
        entry.finish()?;
        Ok(())
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
