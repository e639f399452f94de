//! Files that are larger than all memory that is shared with the daemon.

mod common;

use transom_wire::linux::O_DIRECT;

use std::{fs::File, os::unix::fs::FileExt as _, thread};

use common::{on_disk, transomd};
use transom_user::{
    guest::{
        cache::CacheOptions,
        fs::{Fs, OpenOptions},
        session::SessionConfig,
    },
    share::Share,
};

const MIB: u64 = 1 << 20;
const FILE_LEN: u64 = 160 * MIB;

#[test]
fn what_is_kept_leaves_room_for_requests_of_every_size_from_many_threads() {
    let dir = on_disk();
    let host = File::create(dir.path().join("large")).unwrap();
    host.set_len(FILE_LEN).unwrap();
    // A mark in each MiB; the rest are holes.
    (0..FILE_LEN / MIB).for_each(|at| host.write_all_at(&at.to_le_bytes(), at * MIB).unwrap());
    // By default as much is kept as the arena has here.
    let mounted =
        Share::builder().shared_dir(dir.path()).daemon(transomd()).arena_len_bytes(64 << 20).connect().unwrap();
    let share = Fs::mount(mounted.session(SessionConfig::default()).unwrap(), CacheOptions::default());
    let read_all = |options: OpenOptions, piece_len: usize| {
        let file = share.open("large", &options.read(true)).unwrap();
        let mut piece = vec![0; piece_len];
        for at in (0..FILE_LEN).step_by(piece_len) {
            assert_eq!(file.read_at(at, &mut piece).unwrap(), piece_len);
            if at % MIB == 0 {
                assert_eq!(piece[..8], (at / MIB).to_le_bytes());
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| read_all(OpenOptions::new(), 128 << 10));
            scope.spawn(|| read_all(OpenOptions::new().custom_flags(O_DIRECT), 1 << 20));
        }
    });
    assert!(share.volume().kept_bytes() > 0);
}
