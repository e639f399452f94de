//! Files: reads return what was written.

use transom_guest::{
    Errno,
    cache::CacheMode,
    fs::{OpenOptions, SeekFrom},
};

use crate::{MODES, on_host};

#[test]
fn what_is_written_is_read_and_reaches_the_host() {
    for mode in MODES {
        let (dir, fs) = on_host(mode);
        let file = fs.open("file", &OpenOptions::new().read(true).write(true).create(true)).unwrap();
        // More than one request can carry.
        let bytes: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 300_000);
        let mut found = vec![0; 400_000];
        assert_eq!(file.read_at(0, &mut found), Ok(300_000));
        assert_eq!(found[..300_000], bytes);
        assert_eq!(file.read_at(299_999, &mut found), Ok(1));
        assert_eq!(file.read_at(300_000, &mut found), Ok(0));
        assert_eq!(file.seek(SeekFrom::End(-10)), Ok(299_990));
        assert_eq!(file.read(&mut found), Ok(10));
        file.set_len(10).unwrap();
        file.set_len(20).unwrap();
        assert_eq!(file.read_at(5, &mut found), Ok(15));
        assert_eq!(found[..15], [5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.sync_all().unwrap();
        file.close().unwrap();
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap().len(), 20);
    }
}

#[test]
fn appending_goes_to_the_end_wherever_that_is() {
    let (dir, fs) = on_host(CacheMode::Auto);
    std::fs::write(dir.path().join("log"), b"one ").unwrap();
    let file = fs.open("log", &OpenOptions::new().append(true)).unwrap();
    file.write_all(b"two ").unwrap();
    std::fs::write(dir.path().join("log"), b"1 ").unwrap();
    assert_eq!(file.write_at(0, b"3 "), Ok(2));
    file.write_all(b"4").unwrap();
    assert_eq!(file.position(), 5);
    assert_eq!(std::fs::read(dir.path().join("log")).unwrap(), b"1 3 4");
}

#[test]
fn what_a_file_is_not_open_for_it_refuses() {
    let (_dir, fs) = on_host(CacheMode::Auto);
    let written = fs.create("file").unwrap();
    assert_eq!(written.read_at(0, &mut [0]), Err(Errno::BADF));
    let read = fs.open_read("file").unwrap();
    assert_eq!(read.write_at(0, b"x"), Err(Errno::BADF));
    assert_eq!(read.set_len(0), Err(Errno::INVAL));
    assert_eq!(fs.open("file", &OpenOptions::new()).err(), Some(Errno::INVAL));
    let exclusive = OpenOptions::new().write(true).create_new(true);
    assert_eq!(fs.open("file", &exclusive).err(), Some(Errno::EXIST));
    assert_eq!(written.seek(SeekFrom::Current(-1)), Err(Errno::INVAL));
    assert_eq!(written.write_at(i64::MAX as u64, b"x"), Err(Errno::FBIG));
}

#[test]
fn what_threads_append_at_the_same_time_is_all_there() {
    const THREADS: usize = 4;
    const TIMES: usize = 200;
    for mode in MODES {
        let (dir, fs) = on_host(mode);
        fs.create("log").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let fs = fs.with_queue(thread as u16);
                scope.spawn(move || {
                    let file = fs.open("log", &OpenOptions::new().append(true)).unwrap();
                    (0..TIMES).for_each(|_| file.write_all(&[thread as u8; 100]).unwrap());
                });
            }
        });
        let log = std::fs::read(dir.path().join("log")).unwrap();
        assert_eq!(log.len(), THREADS * TIMES * 100);
        assert!(log.chunks(100).all(|line| line.iter().all(|byte| byte == &line[0])));
    }
}

#[test]
fn threads_read_one_file_while_it_is_written() {
    const LEN: usize = 400_000;
    let (_dir, fs) = on_host(CacheMode::Always);
    let written = fs.create("file").unwrap();
    written.write_all(&vec![0; LEN]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let fs = fs.with_queue(thread);
            scope.spawn(move || {
                let mut bytes = vec![0; 5000];
                for at in 0..400 {
                    let file = fs.open_read("file").unwrap();
                    let offset = at * 997 % (LEN as u64 - 5000);
                    assert_eq!(file.read_at(offset, &mut bytes), Ok(5000));
                    assert!(bytes.iter().all(|&byte| byte <= 20), "bytes that nobody wrote");
                }
            });
        }
        for round in 1..=20 {
            written.write_at(0, &vec![round; LEN]).unwrap();
        }
    });
    let mut bytes = vec![0; LEN];
    assert_eq!(fs.open_read("file").unwrap().read_at(0, &mut bytes), Ok(LEN));
    assert!(bytes.iter().all(|&byte| byte == 20));
}
