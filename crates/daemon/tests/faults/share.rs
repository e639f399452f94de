//! The shared directory: what is in it at the beginning of a round, and a picture of it to compare.

use std::{
    collections::BTreeMap,
    fs::{self, DirEntry, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

/// The text of `file`; `outside/secret` has another.
pub(crate) const CONTENT: &[u8] = &[b'c'; 5000];
/// What no reply and no file of the share may hold.
pub(crate) const SECRET: &[u8] = b"outside of the share";
/// The attribute of `file`.
pub(crate) const ATTRIBUTE: (&str, &[u8]) = ("user.name", b"value");
/// Times before this one were set by a request; later ones are those of the clock, and not compared.
const CLOCK_FROM: i64 = 1_000_000_000;

/// Makes `share` anew, and `outside` beside it.
pub(crate) fn build(share: &Path) -> io::Result<()> {
    let outside = share.with_file_name("outside");
    for dir in [&outside, share] {
        fs::create_dir_all(dir)?;
        empty(dir)?;
    }
    write(&outside.join("secret"), SECRET)?;
    for (name, content) in [("file", CONTENT), ("copy", b""), ("unseen", b"unseen"), ("victim", b"victim")] {
        write(&share.join(name), content)?;
    }
    for dir in ["dir", "empty"] {
        fs::create_dir(share.join(dir))?;
        fs::set_permissions(share.join(dir), Permissions::from_mode(0o777))?;
    }
    for name in ["dir/inner", "dir/other"] {
        write(&share.join(name), name.as_bytes())?;
    }
    rustix::fs::setxattr(share.join("file"), ATTRIBUTE.0, ATTRIBUTE.1, rustix::fs::XattrFlags::empty())?;
    symlink("target", share.join("link"))
}

/// Writes a file of mode 0644, whatever the umask.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

fn empty(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// All of a directory that a request may change.
pub(crate) type Picture = BTreeMap<String, Node>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Type and permissions.
    mode: u32,
    owner: (u32, u32),
    links: u64,
    content: Vec<u8>,
    attributes: BTreeMap<String, Vec<u8>>,
    /// In seconds; `None` for a time of the clock.
    modified_at: Option<i64>,
}

/// A picture of the directory `at`.
pub(crate) fn picture(at: &Path) -> io::Result<Picture> {
    let mut picture = Picture::new();
    add(at, "", &mut picture)?;
    Ok(picture)
}

fn add(at: &Path, prefix: &str, picture: &mut Picture) -> io::Result<()> {
    for entry in fs::read_dir(at)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        picture.insert(name.clone(), node(&entry)?);
        if entry.file_type()?.is_dir() {
            add(&entry.path(), &format!("{name}/"), picture)?;
        }
    }
    Ok(())
}

fn node(entry: &DirEntry) -> io::Result<Node> {
    let (path, metadata) = (entry.path(), entry.metadata()?);
    let file_type = metadata.file_type();
    let content = match (file_type.is_file(), file_type.is_symlink()) {
        (true, _) => fs::read(&path)?,
        (_, true) => fs::read_link(&path)?.into_os_string().into_encoded_bytes(),
        _ => Vec::new(),
    };
    let mut attributes = BTreeMap::new();
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(&path, &mut names)?;
    for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(&path, name, &mut value)?;
        attributes.insert(String::from_utf8_lossy(name).into_owned(), value[..len].to_vec());
    }
    Ok(Node {
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        // The links of a directory are those of its entries.
        links: if file_type.is_dir() { 0 } else { metadata.nlink() },
        content,
        attributes,
        modified_at: Some(metadata.mtime()).filter(|&time| time < CLOCK_FROM),
    })
}

/// What differs, for a message.
pub(crate) fn difference(picture: &Picture, expected: &Picture) -> String {
    let names: std::collections::BTreeSet<_> = picture.keys().chain(expected.keys()).collect();
    let differing = names.into_iter().filter(|&name| picture.get(name) != expected.get(name));
    let told = differing.map(|name| format!("{name}: {} for {}", tell(picture.get(name)), tell(expected.get(name))));
    told.collect::<Vec<_>>().join("; ")
}

fn tell(node: Option<&Node>) -> String {
    let Some(Node { mode, owner, links, content, attributes, modified_at }) = node else { return "nothing".into() };
    let attributes: Vec<_> = attributes.keys().collect();
    let len = content.len();
    format!("{mode:o} of {owner:?}, {links} links, {len} bytes, {attributes:?}, time {modified_at:?}")
}
