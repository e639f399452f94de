//! A platform that has no windows maps no file, whatever it passes to its volume.

use std::sync::Arc;

use transom_guest::{Platform, fs::OpenOptions};

use crate::{fake::share_on, peer::Spin};

#[derive(Default)]
struct Windowless;

impl Platform for Windowless {
    const HAS_WINDOWS: bool = false;

    type RawMutex = parking_lot::RawMutex;
    type Event = Spin;

    fn now_ns(&self) -> u64 {
        1
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }
}

#[test]
fn a_platform_without_windows_sends_what_it_reads_and_writes() {
    let (dir, window, fs, _) = share_on(Arc::<Windowless>::default(), 4);
    let file = fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    // Long enough that a file is mapped by any access.
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
    assert_eq!(file.write_at(0, &bytes), Ok(bytes.len()));
    let mut read = vec![0; bytes.len()];
    assert_eq!(file.read_at(0, &mut read), Ok(bytes.len()));
    assert!(read == bytes);
    assert!(std::fs::read(dir.path().join("file")).unwrap() == bytes, "what the host has");
    assert!(fs.volume().window().is_none() && file.inode().ranges().is_none());
    assert!(window.mappings.lock().unwrap().is_empty(), "something was mapped");
}
