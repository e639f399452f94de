//! Files that are open with O_DIRECT while the kernel's cache has pages of them: none of the data is lost.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
};

use tempfile::TempDir;
use transom_mount::{Mount, Options};
use transom_user::share::Share;

use crate::{common, needs_mounts, passthrough::Mapped, unmount};

/// A page and a tail, which O_DIRECT refuses.
const LEN: usize = 5000;

/// A mount whose daemon passes O_DIRECT on.
struct Direct {
    mount: Mount,
    host: TempDir,
    at: TempDir,
}

impl Direct {
    /// `None`, and says so, where the share's file system has no O_DIRECT that demands an alignment.
    fn start(args: &[&str]) -> Option<Self> {
        let (host, at) = (common::on_disk(), tempfile::tempdir().unwrap());
        let probe = host.path().join("probe");
        let is_strict = File::options()
            .write(true)
            .create(true)
            .custom_flags(libc::O_DIRECT)
            .open(&probe)
            .is_ok_and(|file| file.write_at(b"unaligned", 0).is_err());
        if !is_strict {
            println!("SKIPPED: O_DIRECT demands no alignment in {}", host.path().display());
            return None;
        }
        fs::remove_file(probe).unwrap();
        let mut program = common::transomd();
        program.args = ["--allow-direct-io"].iter().chain(args).map(Into::into).collect();
        let share = Share::builder().shared_dir(host.path()).daemon(program);
        let mount = Mount::start(share, at.path(), Options::default()).unwrap();
        Some(Self { mount, host, at })
    }

    fn open(&self, flags: i32) -> File {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .custom_flags(flags)
            .open(self.at.path().join("file"))
            .unwrap()
    }

    fn on_host(&self) -> Vec<u8> {
        fs::read(self.host.path().join("file")).unwrap()
    }

    fn end(mut self) {
        unmount(&mut self.mount);
    }
}

#[test]
fn what_was_written_without_o_direct_is_kept_whichever_descriptor_writes_it_back() {
    needs_mounts!();
    let data: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    // Linux takes the descriptor that was opened last: the direct one, or the other.
    for is_direct_last in [true, false] {
        for closes in [true, false] {
            let Some(share) = Direct::start(&["--writeback"]) else { return };
            let first = share.open(if is_direct_last { 0 } else { libc::O_DIRECT });
            let (cached, direct) = if is_direct_last {
                first.write_all_at(&data, 0).unwrap();
                (first, share.open(libc::O_DIRECT))
            } else {
                let cached = share.open(0);
                cached.write_all_at(&data, 0).unwrap();
                (cached, first)
            };
            if !closes {
                cached.sync_all().unwrap();
            }
            drop(cached);
            direct.sync_all().unwrap();
            assert!(share.on_host() == data, "{is_direct_last} {closes}: {} bytes are there", share.on_host().len());
            // The direct one goes on by O_DIRECT, and sees it.
            assert_eq!(direct.write_at(b"x", 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            let mut room = vec![0; 3 * 4096];
            let start = room.as_ptr().align_offset(4096);
            assert_eq!(direct.read_at(&mut room[start..start + 8192], 0).unwrap(), LEN);
            assert!(room[start..start + LEN] == data);
            drop(direct);
            share.end();
        }
    }
}

#[test]
fn stores_to_a_mapping_of_a_descriptor_with_o_direct_are_kept() {
    needs_mounts!();
    for args in [&["--allow-mmap", "--cache=never"][..], &["--allow-mmap"], &["--allow-mmap", "--writeback"]] {
        let Some(share) = Direct::start(args) else { return };
        fs::write(share.host.path().join("file"), vec![1; LEN]).unwrap();
        let file = share.open(libc::O_DIRECT);
        let mapped = Mapped::new(&file, LEN);
        assert_eq!(mapped.load(LEN - 2, 2), [1, 1]);
        mapped.store(0, b"head");
        mapped.store(LEN - 4, b"tail");
        drop(mapped);
        file.sync_all().unwrap();
        let expected = [b"head", &vec![1; LEN - 8][..], b"tail"].concat();
        assert!(share.on_host() == expected, "{args:?}");
        drop(file);
        share.end();
    }
}
