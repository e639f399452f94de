//! A load on a mount whose daemon dies again and again, with a model of what the files hold.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    thread,
};

use crate::{lasting::Lasting, needs_mounts};

#[test]
fn threads_that_write_and_read_go_on_while_the_daemon_dies_again_and_again() {
    needs_mounts!();
    Lasting::each(|lasting| {
        // Of another process: the one that mounts starts the daemons, and must not wait for them.
        let stop = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "load::the_load_of_another_process", "--ignored", "--nocapture"]);
        command.env(LOAD_AT, lasting.at.path()).env(LOAD_HOST, lasting.host.path()).env(LOAD_STOP, stop.path());
        let mut load = command.spawn().unwrap();
        for _ in 0..4 {
            lasting.kill();
        }
        fs::write(stop.path().join("stop"), "").unwrap();
        assert!(load.wait().unwrap().success());
        assert!((0..4).all(|index| lasting.host(&format!("of-{index}")).exists()), "it did nothing");
    });
}

const LOAD_AT: &str = "TRANSOM_TEST_LOAD_AT";
const LOAD_HOST: &str = "TRANSOM_TEST_LOAD_HOST";
const LOAD_STOP: &str = "TRANSOM_TEST_LOAD_STOP";

#[test]
#[ignore = "a part of the test above, which starts it"]
fn the_load_of_another_process() {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(at), Some(host), Some(stop)) = (path(LOAD_AT), path(LOAD_HOST), path(LOAD_STOP)) else {
        println!("SKIPPED: nobody says where");
        return;
    };
    let stop = stop.join("stop");
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|index| {
                scope.spawn({
                    let (at, stop) = (&at, &stop);
                    move || work(at, index, stop)
                })
            })
            .collect();
        for worker in workers {
            let (name, text) = worker.join().unwrap();
            assert!(fs::read(host.join(&name)).unwrap() == text, "{name}");
        }
    });
}

/// Writes a file over and over and reads it back, and makes and removes others beside it; returns its content at
/// the end.
fn work(at: &Path, index: u32, stop: &Path) -> (String, Vec<u8>) {
    let name = format!("of-{index}");
    let dir = at.join(format!("dir-{index}"));
    // What was under way when the daemon died may have been done, and fails.
    while let Err(error) = fs::create_dir(&dir) {
        match error.raw_os_error() {
            Some(libc::EIO) => {}
            Some(libc::EEXIST) => break,
            _ => panic!("{error}"),
        }
    }
    let file = File::options().read(true).write(true).create(true).truncate(true).open(at.join(&name)).unwrap();
    let mut model = vec![0; 256 << 10];
    file.write_all_at(&model, 0).unwrap();
    let mut seed = u64::from(index) + 1;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let mut steps = 0;
    while steps < 200 || !stop.exists() {
        steps += 1;
        let (start, len, byte) = (random(model.len() - 8192), random(8192), random(256) as u8);
        match random(4) {
            0 => {
                let mut read = vec![0; len];
                file.read_exact_at(&mut read, start as u64).unwrap();
                assert!(read == model[start..start + len], "{name} at {start}");
            }
            1 => {
                // Names: what was under way may fail, and nothing else.
                let (one, two) = (dir.join("one"), dir.join("two"));
                for done in [fs::write(&one, "1"), fs::rename(&one, &two), fs::remove_file(&two)] {
                    let error = done.err().and_then(|error| error.raw_os_error());
                    assert!(matches!(error, None | Some(libc::EIO | libc::ENOENT | libc::ESTALE)), "{error:?}");
                }
            }
            2 => {
                assert!(fs::read_dir(&dir).unwrap().all(|entry| entry.is_ok()));
            }
            _ => {
                model[start..start + len].fill(byte);
                file.write_all_at(&model[start..start + len], start as u64).unwrap();
            }
        }
    }
    (name, model)
}
