use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
};

use super::*;

fn path_fd(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap()
}

#[test]
fn an_inode_is_opened_changed_and_linked_after_its_name_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new, third) = (dir.path().join("old"), dir.path().join("new"), dir.path().join("third"));
    fs::write(&old, "content").unwrap();
    let proc = ProcFds::open().unwrap();
    let fd = path_fd(&old);
    fs::rename(&old, &new).unwrap();
    fs::write(&old, "another").unwrap();

    let reopened = proc.reopen(&fd, OFlags::RDONLY | OFlags::NOFOLLOW).unwrap();
    assert_eq!(std::io::read_to_string(fs::File::from(reopened)).unwrap(), "content");
    proc.chmod(&fd, Mode::from_raw_mode(0o640)).unwrap();
    assert_eq!(new.metadata().unwrap().mode() & 0o7777, 0o640);
    proc.link(&fd, path_fd(dir.path()), b"third").unwrap();
    assert_eq!(third.metadata().unwrap().ino(), new.metadata().unwrap().ino());
}

#[test]
fn a_symbolic_link_is_linked_itself_and_cannot_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("target"), "").unwrap();
    symlink("target", dir.path().join("link")).unwrap();
    let proc = ProcFds::open().unwrap();
    let link = path_fd(&dir.path().join("link"));
    assert_eq!(proc.reopen(&link, OFlags::RDONLY).err(), Some(Errno::LOOP));
    proc.link(&link, path_fd(dir.path()), b"second").unwrap();
    assert_eq!(fs::read_link(dir.path().join("second")).unwrap(), Path::new("target"));
}

#[test]
fn a_file_without_a_name_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = match rustix::fs::open(dir.path(), OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o600)) {
        Err(Errno::OPNOTSUPP) => return println!("SKIPPED: no O_TMPFILE here"),
        file => file.unwrap(),
    };
    rustix::io::write(&file, b"born").unwrap();
    ProcFds::open().unwrap().link(&file, path_fd(dir.path()), b"name").unwrap();
    assert_eq!(fs::read(dir.path().join("name")).unwrap(), b"born");
}

#[test]
fn attributes_of_files_and_directories_work_and_other_threads_stay_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let here = std::env::current_dir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let proc = ProcFds::open().unwrap();
            let another = ProcFds::open().unwrap();
            for path in [dir.path().to_owned(), dir.path().join("file")] {
                let fd = path_fd(&path);
                match proc.set_xattr(&fd, b"user.a", b"value", XattrFlags::CREATE) {
                    Err(Errno::OPNOTSUPP) => return println!("SKIPPED: no extended attributes here"),
                    outcome => outcome.unwrap(),
                }
                assert_eq!(proc.set_xattr(&fd, b"user.a", b"", XattrFlags::CREATE), Err(Errno::EXIST));
                assert_eq!(proc.get_xattr(&fd, b"user.a", &mut []), Ok(5));
                let mut value = [0; 8];
                assert_eq!(proc.get_xattr(&fd, b"user.a", &mut value[..2]), Err(Errno::RANGE));
                assert_eq!(another.get_xattr(&fd, b"user.a", &mut value), Ok(5));
                assert_eq!(&value[..5], b"value");
                let mut list = [0; 256];
                let len = proc.list_xattr(&fd, &mut list).unwrap();
                assert!(list[..len].split(|&byte| byte == 0).any(|name| name == b"user.a"));
                proc.remove_xattr(&fd, b"user.a").unwrap();
                assert_eq!(proc.get_xattr(&fd, b"user.a", &mut value), Err(Errno::NODATA));
            }
        });
    });
    assert_eq!(std::env::current_dir().unwrap(), here);
}
