//! An overlay whose upper layer is full: a copy that fails half-way changes nothing.

use std::{fs, path::Path};

use rustix::io::Errno;
use transom_frontend::{FrontEnd, Options, fuse::Session};

use crate::launch::{Bench, is_root, skipped};

const ROOT: u64 = 1;
const LARGE_LEN: usize = 4 << 20;

/// The names below `dir`, with their paths in it.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names.into_iter().map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn a_file_that_does_not_fit_into_the_upper_layer_stays_as_it_is() {
    if !is_root() {
        return skipped("mounts a file system");
    }
    let bench = Bench::new();
    let layer = bench.path().join("layer");
    fs::create_dir(&layer).unwrap();
    let lower = [("large", vec![7; LARGE_LEN]), ("small", b"small".to_vec())];
    lower.iter().for_each(|(name, data)| fs::write(bench.share().join(name), data).unwrap());
    let mount = format!("mount -t tmpfs -o size=1m upper {0} && mkdir {0}/upper {0}/work", layer.display());
    let overlay = format!("--overlay {}", layer.display());
    let mut daemon = bench.start_after(&mount, &format!("--socket-path {{S}} --shared-dir {{D}} {overlay}"));
    let front_end = FrontEnd::over(daemon.connect(), Options::default()).unwrap();
    let mut guest = Session::begin(front_end.start_queue(1).unwrap()).unwrap();

    let large = guest.lookup(ROOT, b"large").unwrap().nodeid.get();
    let reading = guest.open(large, libc::O_RDONLY as u32).unwrap();
    for _ in 0..3 {
        let opened = guest.open(large, libc::O_RDWR as u32);
        assert_eq!(opened.unwrap_err().errno(), Some(Errno::NOSPC));
        assert_eq!(guest.link(large, ROOT, b"link").unwrap_err().errno(), Some(Errno::NOSPC));
        assert_eq!(guest.rename((ROOT, b"large"), (ROOT, b"moved")).unwrap_err().errno(), Some(Errno::NOSPC));
    }
    // It is there, whole, under its name and for whoever has it open.
    assert_eq!(guest.lookup(ROOT, b"large").unwrap().nodeid.get(), large);
    let again = guest.open(large, libc::O_RDONLY as u32).unwrap();
    for fh in [reading, again] {
        let end = (LARGE_LEN - 4096) as u64;
        assert!(guest.read(large, fh, end, 4096).unwrap() == [7; 4096] && guest.getattr(large, Some(fh)).is_ok());
    }
    // Nothing of the attempts takes space, so what fits is changed.
    let small = guest.lookup(ROOT, b"small").unwrap().nodeid.get();
    let fh = guest.open(small, libc::O_RDWR as u32).unwrap();
    assert_eq!(guest.write(small, fh, 0, b"SMALL").unwrap(), 5);
    let seen = |place: &str| format!("/proc/{}/root{}/{place}", daemon.pid(), layer.display());
    assert_eq!(names(seen("upper").as_ref()), ["small"]);
    assert_eq!(names(seen("work/work").as_ref()), [""; 0]);
    for (name, data) in lower {
        assert!(fs::read(bench.share().join(name)).unwrap() == data, "{name} of the shared directory has changed");
    }
}
