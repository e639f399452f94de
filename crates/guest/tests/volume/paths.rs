//! Paths: what they lead to, and what is said where they lead nowhere.

use transom_guest::{Errno, cache::CacheMode, fs::Fs};

use crate::{MODES, in_memory, on_host, peer::Plain};

/// Some directories, files and links.
fn furnish(fs: &Fs<Plain>) {
    fs.create_dir_all("a/b/c", 0o755).unwrap();
    fs.create("a/b/c/file").unwrap().write_all(b"hello").unwrap();
    fs.symlink("b/c", "a/link").unwrap();
    fs.symlink("/a/b", "a/b/absolute").unwrap();
    fs.symlink("nowhere", "dangling").unwrap();
    fs.symlink("loop", "loop").unwrap();
}

#[test]
fn a_path_leads_through_links_and_dots() {
    for mode in MODES {
        let (_dir, mut fs) = on_host(mode);
        furnish(&fs);
        let ino = fs.metadata("a/b/c/file").unwrap().attr().ino;
        for path in [
            "/a/b/c/file",
            "a//b/./c/file",
            "a/link/file",
            "a/link/../c/file",
            "a/b/absolute/c/file",
            "../../a/b/c/../c/file",
            "/../a/link/../../b/c/file",
        ] {
            assert_eq!(fs.metadata(path).unwrap().attr().ino, ino, "{path}");
            assert_eq!(fs.canonicalize(path).unwrap(), b"/a/b/c/file", "{path}");
        }
        fs.set_current_dir("a/link").unwrap();
        assert_eq!(fs.current_dir(), b"/a/b/c");
        assert_eq!(fs.metadata("file").unwrap().attr().ino, ino);
        assert_eq!(fs.metadata("../../link/file").unwrap().attr().ino, ino);
        assert_eq!(fs.metadata("../../../../../a/b/c/file").unwrap().attr().ino, ino);
        assert_eq!(fs.canonicalize("..").unwrap(), b"/a/b");
        fs.set_current_dir("../../../..").unwrap();
        assert_eq!(fs.current_dir(), b"/");
    }
}

#[test]
fn a_path_that_leads_nowhere_says_why() {
    let (_peer, fs) = in_memory(CacheMode::Auto);
    furnish(&fs);
    for (path, error) in [
        ("", Errno::NOENT),
        ("x", Errno::NOENT),
        ("x/y", Errno::NOENT),
        ("dangling", Errno::NOENT),
        ("loop", Errno::LOOP),
        ("loop/x", Errno::LOOP),
        ("a/b/c/file/", Errno::NOTDIR),
        ("a/b/c/file/x", Errno::NOTDIR),
        ("a/b/c/file/..", Errno::NOTDIR),
        ("a\0", Errno::INVAL),
    ] {
        assert_eq!(fs.metadata(path).unwrap_err(), error, "{path:?}");
    }
    assert_eq!(fs.metadata(vec![b'x'; 256]).unwrap_err(), Errno::NAMETOOLONG);
    assert_eq!(fs.metadata(vec![b'/'; 4096]).unwrap_err(), Errno::NAMETOOLONG);
    assert_eq!(fs.create_dir("a/b/", 0o755).unwrap_err(), Errno::EXIST);
    assert_eq!(fs.create_dir("/", 0o755).unwrap_err(), Errno::EXIST);
    assert_eq!(fs.remove_dir("a/.").unwrap_err(), Errno::INVAL);
    assert_eq!(fs.remove_dir("a/..").unwrap_err(), Errno::NOTEMPTY);
    assert_eq!(fs.remove_dir("a").unwrap_err(), Errno::NOTEMPTY);
    assert_eq!(fs.remove_file("a").unwrap_err(), Errno::ISDIR);
    assert_eq!(fs.rename("a", "/").unwrap_err(), Errno::BUSY);
    assert_eq!(fs.read_link("a").unwrap_err(), Errno::INVAL);
    assert_eq!(fs.set_current_dir_error("a/b/c/file"), Errno::NOTDIR);
}

/// What a clone is told.
trait CurrentDir {
    fn set_current_dir_error(&self, path: &str) -> Errno;
}

impl CurrentDir for Fs<Plain> {
    fn set_current_dir_error(&self, path: &str) -> Errno {
        self.clone().set_current_dir(path).unwrap_err()
    }
}

#[test]
fn a_link_at_the_end_is_followed_where_that_is_meant() {
    let (_dir, fs) = on_host(CacheMode::Auto);
    furnish(&fs);
    assert!(fs.symlink_metadata("a/link").unwrap().is_symlink());
    assert!(fs.symlink_metadata("a/link/").unwrap().is_dir());
    assert!(fs.metadata("a/link").unwrap().is_dir());
    assert_eq!(fs.read_link("a/link").unwrap(), b"b/c");
    // Creating through a dangling link makes what it names.
    fs.create("dangling").unwrap();
    assert!(fs.symlink_metadata("nowhere").unwrap().is_file());
    fs.remove_file("a/link").unwrap();
    assert!(fs.metadata("a/b/c").unwrap().is_dir());
}

#[test]
fn names_are_made_moved_and_removed() {
    for mode in MODES {
        let (dir, fs) = on_host(mode);
        furnish(&fs);
        fs.rename("a/b/c/file", "a/moved").unwrap();
        assert_eq!(fs.metadata("a/b/c/file").unwrap_err(), Errno::NOENT);
        fs.hard_link("a/moved", "second").unwrap();
        assert_eq!(fs.metadata("a/moved").unwrap().attr().nlink, 2);
        fs.remove_file("a/moved").unwrap();
        assert_eq!(fs.metadata("second").unwrap().attr().nlink, 1);
        fs.rename_with("second", "a", 2).unwrap();
        assert!(fs.metadata("second/b").unwrap().is_dir());
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"hello");
        assert_eq!(fs.rename_with("second", "a", 1).unwrap_err(), Errno::EXIST);
        fs.remove_dir_all("second").unwrap();
        let names: Vec<_> = fs.read_dir("/").unwrap().map(|entry| entry.unwrap().name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert_eq!(fs.metadata("second/b").unwrap_err(), Errno::NOENT);
    }
}
