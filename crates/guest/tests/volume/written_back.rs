//! Delayed writes: when they reach the server, and who gets the error if they do not.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    fs::{Fs, OpenOptions, SeekFrom},
    session::{Session, SessionConfig},
    volume::SetTime,
};
use transom_host::passthrough::{Config, Passthrough};
use transom_wire::{Opcode, linux::O_DSYNC, ops::init::InitFlags};

use crate::peer::{Peer, Plain};

pub(crate) fn mount(dirty_max_bytes: usize) -> (tempfile::TempDir, Arc<Peer<Passthrough>>, Fs<Plain>) {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { writeback: true, ..Config::default() };
    let peer = Peer::new(Passthrough::open(dir.path(), config).unwrap());
    let session_config = SessionConfig::default().with(InitFlags::WRITEBACK_CACHE);
    let session = Session::begin(Arc::clone(&peer) as _, Arc::default(), session_config).unwrap();
    assert!(session.negotiated().flags.contains(InitFlags::WRITEBACK_CACHE));
    let options = CacheOptions { mode: CacheMode::Always, dirty_max_bytes, ..CacheOptions::default() };
    (dir, peer, Fs::mount(session, options))
}

fn options() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

#[test]
fn small_writes_wait_and_go_together() {
    let (dir, peer, fs) = mount(16 << 20);
    let file = fs.open("file", &options()).unwrap();
    file.write_all(b"x").unwrap();
    let before = peer.messages();
    for _ in 0..1000 {
        file.write_all(b"twenty bytes at once").unwrap();
    }
    assert_eq!(peer.messages(), before);
    assert_eq!(std::fs::metadata(dir.path().join("file")).unwrap().len(), 0);
    assert_eq!(file.seek(SeekFrom::End(0)), Ok(20_001));
    assert_eq!(peer.messages(), before);
    file.sync_data().unwrap();
    assert!(peer.messages() - before <= 3);
    assert_eq!(fs.volume().dirty_bytes(), 0);
    assert_eq!(std::fs::metadata(dir.path().join("file")).unwrap().len(), 20_001);
}

#[test]
fn a_stat_tells_the_time_of_a_write_that_waits_and_the_same_time_once_it_is_written() {
    let (dir, _peer, fs) = mount(16 << 20);
    let file = fs.open("file", &options()).unwrap();
    let told = || {
        [file.metadata().unwrap(), fs.metadata("file").unwrap()]
            .map(|found| (found.attr().mtime.get(), found.attr().mtimensec.get()))
    };
    for round in 0..3 {
        file.write_at(0, &[round; 10]).unwrap();
        file.sync_all().unwrap();
        file.set_times(SetTime::At(1, 0), SetTime::At(1, 0)).unwrap();
        assert_eq!(told(), [(1, 0); 2]);
        file.write_at(5, &[round; 100]).unwrap();
        let [time, by_name] = told();
        assert!(time > (1, 0), "{time:?}");
        assert_eq!(time, by_name);
        file.sync_all().unwrap();
        assert_eq!(told(), [time; 2]);
        let host = std::fs::metadata(dir.path().join("file")).unwrap().modified().unwrap();
        let host = host.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!((host.as_secs(), host.subsec_nanos()), time);
    }
}

#[test]
fn what_waits_is_written_by_closing_by_dropping_by_age_and_before_the_host_is_asked() {
    let (dir, _peer, fs) = mount(16 << 20);
    let path = dir.path().join("file");
    let contents = || std::fs::read(&path).unwrap();
    let file = fs.open("file", &options()).unwrap();
    file.write_all(b"close ").unwrap();
    file.close().unwrap();
    assert_eq!(contents(), b"close ");
    let file = fs.open("file", &options()).unwrap();
    file.write_at(0, b"drop").unwrap();
    drop(file);
    assert_eq!(contents(), b"drope ");
    let file = fs.open("file", &options()).unwrap();
    file.write_at(0, b"aged").unwrap();
    fs.volume().write_back(0);
    assert_eq!(contents(), b"agede ");
    file.write_at(6, b"seek").unwrap();
    file.as_open_file().seek_hole(&crate::peer::ROOT, 0).unwrap();
    assert_eq!(contents(), b"agede seek");
    file.write_at(0, b"A").unwrap();
    fs.truncate("file", 5).unwrap();
    assert_eq!(contents(), b"Agede");
    file.write_at(0, b"B").unwrap();
    fs.sync().unwrap();
    assert_eq!(contents(), b"Bgede");
}

#[test]
fn no_more_is_dirty_than_may_be() {
    const BOUND: usize = 256 << 10;
    let (dir, _peer, fs) = mount(BOUND);
    let files: Vec<_> = (0..8).map(|at| fs.open(format!("file{at}"), &options()).unwrap()).collect();
    for round in 0..40_u64 {
        for file in &files {
            file.write_at(round * 10_000, &vec![round as u8; 10_000]).unwrap();
            assert!(fs.volume().dirty_bytes() <= BOUND);
        }
    }
    drop(files);
    for at in 0..8 {
        let found = std::fs::read(dir.path().join(format!("file{at}"))).unwrap();
        assert!(found.chunks(10_000).enumerate().all(|(round, piece)| piece == vec![round as u8; 10_000]));
    }
}

#[test]
fn a_write_that_failed_behind_its_writer_is_told_once() {
    for is_synced in [true, false] {
        let (_dir, peer, fs) = mount(16 << 20);
        let file = fs.open("file", &options()).unwrap();
        file.write_all(&[1; 5000]).unwrap();
        peer.fail(0);
        fs.volume().write_back(0);
        peer.fail(u64::MAX);
        if is_synced {
            assert_eq!(file.sync_all(), Err(Errno::NOMEM));
            assert_eq!(file.sync_all(), Ok(()));
            assert_eq!(file.close(), Ok(()));
        } else {
            assert_eq!(file.close(), Err(Errno::NOMEM));
        }
        assert_eq!(fs.volume().dirty_bytes(), 0);
    }
}

#[test]
fn whoever_syncs_or_unmounts_the_whole_share_is_told_of_a_write_that_failed_though_its_file_is_closed() {
    for is_synced in [true, false] {
        let (_dir, peer, fs) = mount(16 << 20);
        let file = fs.open("file", &options()).unwrap();
        file.write_all(&[1; 5000]).unwrap();
        peer.fail(0);
        fs.volume().write_back(0);
        peer.fail(u64::MAX);
        drop(file);
        if is_synced {
            assert_eq!(fs.sync(), Err(Errno::NOMEM));
            assert_eq!(fs.sync(), Ok(()));
            assert_eq!(fs.unmount(), Ok(()));
        } else {
            assert_eq!(fs.unmount(), Err(Errno::NOMEM));
        }
    }
}

#[test]
fn every_open_file_is_told_of_a_write_that_failed() {
    let (_dir, peer, fs) = mount(16 << 20);
    let files = [(); 2].map(|()| fs.open("file", &options()).unwrap());
    files[0].write_all(&[1; 5000]).unwrap();
    peer.fail(0);
    fs.volume().write_back(0);
    peer.fail(u64::MAX);
    let later = fs.open("file", &options()).unwrap();
    for file in &files {
        assert_eq!(file.sync_all(), Err(Errno::NOMEM));
        assert_eq!(file.sync_all(), Ok(()));
    }
    assert_eq!(later.close(), Err(Errno::NOMEM), "nobody had been told when it was opened");
    assert_eq!(fs.open("file", &options()).unwrap().sync_all(), Ok(()));
}

#[test]
fn a_file_that_is_open_for_synchronous_writing_waits_with_nothing() {
    let (dir, _peer, fs) = mount(16 << 20);
    let file = fs.open("file", &options().custom_flags(O_DSYNC)).unwrap();
    file.write_all(b"at once").unwrap();
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"at once");
    assert_eq!(fs.volume().dirty_bytes(), 0);
}

#[test]
fn fsync_and_sync_wait_for_what_another_thread_is_writing_back() {
    for is_whole in [false, true] {
        let (_dir, peer, fs) = mount(16 << 20);
        // It stays open: closing it would wait too.
        let file = Arc::new(fs.open("file", &options()).unwrap());
        file.write_all(b"x").unwrap();
        let (sender, syncs) = mpsc::channel();
        let (share, synced) = (fs.clone(), Arc::clone(&file));
        peer.meanwhile(Opcode::Write, move || {
            let sync = thread::spawn(move || if is_whole { share.sync() } else { synced.sync_all() });
            // Long enough for a thread that does not wait.
            for _ in 0..10_000 {
                assert!(!sync.is_finished(), "it was told that the data is durable before the server was");
                thread::yield_now();
            }
            sender.send(sync).unwrap();
        });
        fs.volume().write_back(0);
        assert_eq!(syncs.recv().unwrap().join().unwrap(), Ok(()));
    }
}
