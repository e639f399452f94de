//! What the host and other guests write is there at once, and what a guest writes is the host's.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    time::{Duration, Instant},
};

use transom_user::guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    dax::{Dax, WindowMemory as _},
    fs::{Credentials, OpenOptions},
};

use transom_wire::linux::O_DIRECT;

use crate::{FRONT_ENDS, Guest, MIB, RANGE, Whole as _, common::on_disk, pattern, patterned};

/// Far above what a daemon needs to see that its front end is gone.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn reads_and_writes_through_the_window_are_those_of_the_file() {
    for front_end in FRONT_ENDS {
        let dir = on_disk();
        let path = dir.path().join("file");
        fs::write(&path, patterned(0, 2 * RANGE, 1)).unwrap();
        let guest = Guest::new(dir.path(), 4, front_end, CacheMode::None);
        let file = guest.fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
        let mut bytes = vec![0; 3 * MIB];
        assert_eq!(file.read_at(MIB as u64 - 5, &mut bytes), Ok(3 * MIB));
        assert!(bytes == patterned(MIB - 5, 3 * MIB, 1));
        assert!(guest.counts().mapped > 0, "{front_end}: {:?}", guest.counts());
        // The first is a request, and the second is not, or there was no window.
        for seed in [2, 3] {
            assert_eq!(file.write_at(RANGE as u64 - 9, &[seed; 18]), Ok(18));
            let mut seen = [0; 18];
            File::open(&path).unwrap().read_exact_at(&mut seen, RANGE as u64 - 9).unwrap();
            assert_eq!(seen, [seed; 18]);
        }
        drop(file);
        assert_eq!(guest.counts().free, guest.counts().ranges, "an inode that is gone has no ranges");
        assert_eq!(guest.mount.window().unwrap().mappings(), 0);
    }
}

#[test]
fn what_the_host_writes_or_appends_is_read_at_once() {
    for mode in [CacheMode::None, CacheMode::Auto, CacheMode::Always] {
        let dir = on_disk();
        let host = File::options().read(true).write(true).create(true).truncate(true).open(dir.path().join("file"));
        let host = host.unwrap();
        host.write_all_at(&patterned(0, RANGE, 0), 0).unwrap();
        let guest = Guest::new(dir.path(), 4, "generic", mode);
        let file = guest.fs.open("file", &OpenOptions::new().read(true).custom_flags(O_DIRECT)).unwrap();
        for round in 1..50_u8 {
            host.write_all_at(&[round; 100], 4000).unwrap();
            let mut bytes = [0; 100];
            assert_eq!(file.read_at(4000, &mut bytes), Ok(100));
            assert_eq!(bytes, [round; 100]);
            let end = (RANGE + 10 * usize::from(round)) as u64;
            host.write_all_at(&[round; 10], end - 10).unwrap();
            let mut tail = [0; 20];
            assert_eq!(file.read_at(end - 10, &mut tail), Ok(10), "{mode:?}");
            assert_eq!(tail[..10], [round; 10]);
        }
        assert!(guest.counts().mapped >= 1);
    }
}

#[test]
fn two_guests_see_each_other_at_once() {
    let dir = on_disk();
    File::create(dir.path().join("file")).unwrap().set_len(2 * RANGE as u64).unwrap();
    let guests = [(); 2].map(|()| Guest::new(dir.path(), 2, "generic", CacheMode::Auto));
    let files =
        guests.each_ref().map(|guest| guest.fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap());
    for round in 0..200_usize {
        let (writer, reader) = (&files[round % 2], &files[(round + 1) % 2]);
        let at = (round * 12_345 % (2 * RANGE - 64)) as u64;
        writer.write_all_at(at, &[round as u8; 64]).unwrap();
        let mut seen = [0; 64];
        reader.read_exact_at(at, &mut seen).unwrap();
        assert_eq!(seen, [round as u8; 64]);
    }
    guests.iter().for_each(|guest| assert!(guest.counts().mapped >= 2, "{:?}", guest.counts()));
}

#[test]
fn the_time_of_a_write_through_the_window_is_there_when_the_file_is_closed() {
    let dir = on_disk();
    let path = dir.path().join("file");
    File::create(&path).unwrap().set_len(RANGE as u64).unwrap();
    let guest = Guest::new(dir.path(), 2, "generic", CacheMode::Auto);
    let file = guest.fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    file.write_all_at(0, b"by a request").unwrap();
    let early = fs::metadata(&path).unwrap();
    file.write_all_at(0, b"by the window").unwrap();
    file.sync_all().unwrap();
    let late = fs::metadata(&path).unwrap();
    assert!((late.mtime(), late.mtime_nsec()) > (early.mtime(), early.mtime_nsec()));
    assert!(guest.counts().mapped == 1);
}

#[test]
fn a_write_takes_set_id_bits_away() {
    let dir = on_disk();
    let path = dir.path().join("file");
    fs::write(&path, vec![0; RANGE]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    let guest = Guest::new(dir.path(), 2, "generic", CacheMode::Auto);
    let nobody = guest.fs.with_credentials(Credentials { uid: 65_534, gid: 65_534, ..Credentials::default() });
    let file = nobody.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    file.write_all_at(0, b"x").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o6000, 0);
    file.write_all_at(0, b"y").unwrap();
    guest.fs.set_permissions("file", 0o6777).unwrap();
    file.write_all_at(0, b"z").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o6000, 0);
}

#[test]
fn files_that_the_server_does_not_mark_are_not_mapped() {
    let dir = on_disk();
    fs::write(dir.path().join("file"), vec![1; RANGE]).unwrap();
    let options = CacheOptions { mode: CacheMode::None, ..CacheOptions::default() };
    for (dax, is_mapped) in [(Dax::Inode, true), (Dax::Always, true)] {
        let guest = Guest::with(dir.path(), 2, "generic", options, dax);
        let file = guest.fs.open("file", &OpenOptions::new().read(true)).unwrap();
        file.read_at(0, &mut [0; 4096]).unwrap();
        assert_eq!(guest.counts().mapped > 0, is_mapped, "{dax:?}");
    }
    let guest = Guest::new(dir.path(), 2, "generic", CacheMode::None);
    drop(guest.mount.volume(Default::default(), options, Default::default()).unwrap());
}

#[test]
fn reading_beyond_the_end_and_in_holes_gives_what_the_file_has() {
    let dir = on_disk();
    let host = File::create(dir.path().join("file")).unwrap();
    host.set_len(3 * RANGE as u64 + 77).unwrap();
    host.write_all_at(&[7; 10], RANGE as u64).unwrap();
    let guest = Guest::new(dir.path(), 8, "alioth", CacheMode::Auto);
    let file = guest.fs.open("file", &OpenOptions::new().read(true)).unwrap();
    let mut bytes = vec![0xff; RANGE];
    assert_eq!(file.read_at(0, &mut bytes), Ok(RANGE));
    assert!(bytes.iter().all(|&byte| byte == 0));
    assert_eq!(file.read_at(3 * RANGE as u64, &mut bytes), Ok(77));
    assert_eq!(file.read_at(3 * RANGE as u64 + 77, &mut bytes), Ok(0));
    assert_eq!(file.read_at(u64::from(u32::MAX), &mut bytes), Ok(0));
    assert_eq!(file.read_at(RANGE as u64 - 5, &mut bytes[..20]), Ok(20));
    assert_eq!(bytes[..20], [&[0; 5][..], &[7; 10], &[0; 5]].concat());
}

#[test]
fn everything_fails_once_the_daemon_is_gone() {
    let dir = on_disk();
    fs::write(dir.path().join("file"), vec![pattern(0, 0); RANGE]).unwrap();
    let guest = Guest::new(dir.path(), 2, "generic", CacheMode::Auto);
    let file = guest.fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    file.read_at(0, &mut [0; 4096]).unwrap();
    guest.mount.device().transport().hang_up();
    // 1. The window is closed at once.
    let window = guest.mount.window().unwrap();
    assert_eq!(window.load(0, &mut [0; 4096]), Err(Errno::NOTCONN));
    assert_eq!(window.store(0, &[0; 4096]), Err(Errno::NOTCONN));
    // 2. Requests are served until the daemon has noticed, and fail then.
    let begun = Instant::now();
    let ended = loop {
        match file.read_at(0, &mut [0; 4096]) {
            Ok(_) => assert!(begun.elapsed() < PATIENCE, "requests are still served"),
            Err(error) => break error,
        }
    };
    assert_eq!(ended, Errno::NOTCONN);
    assert_eq!(file.write_at(0, &[0; 4096]), Err(Errno::NOTCONN));
}
