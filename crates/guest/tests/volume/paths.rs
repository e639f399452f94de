//! Paths: what they resolve to, and the errors if they resolve to nothing.

use transom_guest::{
    Errno,
    cache::CacheMode,
    fs::{Credentials, Fs},
};

use crate::{MODES, in_memory, on_host, peer::Plain};

/// Creates some directories, files and links.
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
    // Creating through a dangling link creates its target.
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

#[test]
fn only_a_directory_with_a_name_is_removed_with_all_that_is_in_it() {
    let (dir, fs) = on_host(CacheMode::Auto);
    std::fs::create_dir_all(dir.path().join("kept/inner")).unwrap();
    std::fs::write(dir.path().join("kept/file"), b"").unwrap();
    std::os::unix::fs::symlink("kept", dir.path().join("link")).unwrap();
    for (path, error) in [
        ("..", Errno::NOTEMPTY),
        ("kept/inner/..", Errno::NOTEMPTY),
        ("kept/.", Errno::INVAL),
        ("/", Errno::BUSY),
        ("kept/file", Errno::NOTDIR),
        ("link", Errno::NOTDIR),
        ("absent", Errno::NOENT),
    ] {
        assert_eq!(fs.remove_dir_all(path), Err(error), "{path}");
    }
    assert!(dir.path().join("kept/inner").is_dir() && dir.path().join("kept/file").is_file());
    std::os::unix::fs::symlink("../link", dir.path().join("kept/inner/out")).unwrap();
    fs.remove_dir_all("kept").unwrap();
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["link"]);
}

#[test]
fn directories_are_made_along_dots() {
    let (dir, fs) = on_host(CacheMode::Auto);
    fs.create_dir_all("new/./inner/../beside/", 0o755).unwrap();
    assert!(dir.path().join("new/inner").is_dir() && dir.path().join("new/beside").is_dir());
    fs.create_dir_all("new/.", 0o755).unwrap();
    std::fs::write(dir.path().join("new/file"), b"").unwrap();
    assert_eq!(fs.create_dir_all("new/file/inner", 0o755), Err(Errno::NOTDIR));
    assert_eq!(fs.create_dir_all("new/file", 0o755), Err(Errno::EXIST));
    assert_eq!(fs.create_dir_all("", 0o755), Err(Errno::NOENT));
}

#[test]
fn a_directory_that_its_mover_may_not_write_keeps_its_parent() {
    let (dir, root) = on_host(CacheMode::Auto);
    for name in ["from", "to"] {
        root.create_dir(name, 0o777).unwrap();
        root.set_permissions(name, 0o777).unwrap();
    }
    for (path, mode) in [("from/closed", 0o555), ("to/open", 0o755)] {
        root.create_dir(path, mode).unwrap();
        root.set_owner(path, Some(1000), Some(1000), false).unwrap();
        root.set_permissions(path, mode).unwrap();
    }
    let fs = root.with_credentials(Credentials { uid: 1000, gid: 1000, ..Credentials::default() });
    assert_eq!(fs.rename("from/closed", "to/closed"), Err(Errno::ACCESS));
    assert_eq!(fs.rename_with("to/open", "from/closed", 2), Err(Errno::ACCESS), "exchanged");
    fs.rename("from/closed", "from/renamed").unwrap();
    fs.rename("to/open", "from/open").unwrap();
    assert!(dir.path().join("from/renamed").is_dir() && dir.path().join("from/open").is_dir());
}
