//! From a path to an inode: components, `.` and `..`, symlinks with a bound.
//!
//! A [`DirPath`] is a directory with its way from the root, so that `..` needs no request.

use std::sync::Arc;

use transom_conformance::client::Errno;
use transom_wire::{Name, attr::Attr};

use super::{
    Vfs,
    errno::{Result, from_guest},
    node::Node,
    process::Process,
    rights::{self, EXECUTE},
};

/// Symlinks that one resolution follows at the most, as in Linux.
const SYMLINKS_MAX: usize = 40;
/// PATH_MAX, with the NUL that a path has there.
const PATH_LEN_MAX: usize = 4096;

/// A directory and the directories above it.
#[derive(Clone)]
pub(crate) struct DirPath(Vec<Arc<Node>>);

/// What the last component of a path is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Last {
    /// A name in the directory, and whether a slash follows it.
    Name(Vec<u8>, bool),
    Dot,
    DotDot,
    /// The path is the root's.
    Root,
}

/// An inode that a path leads to.
pub(crate) struct Found {
    pub(crate) node: Arc<Node>,
    pub(crate) attr: Attr,
    /// Where it lies, if it is a directory.
    pub(crate) place: Option<DirPath>,
}

impl DirPath {
    pub(crate) fn root(vfs: &Vfs) -> Self {
        Self(vec![Node::root(&vfs.session)])
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        self.0.last().expect("a place has at least the root")
    }

    fn parent(mut self) -> Self {
        if self.0.len() > 1 {
            self.0.pop();
        }
        self
    }

    fn child(mut self, node: Arc<Node>) -> Self {
        self.0.push(node);
        self
    }
}

impl Process<'_> {
    /// The inode at `path`; `follow`: also where that is a symlink.
    pub(crate) fn find(&self, path: &[u8], follow: bool) -> Result<Found> {
        let mut links = 0;
        let (place, last) = self.walk(self.cwd.clone(), path, &mut links)?;
        self.find_last(place, last, follow, &mut links)
    }

    /// The directory that `path` names something in, and the name.
    pub(crate) fn find_parent(&self, path: &[u8]) -> Result<(DirPath, Last)> {
        self.walk(self.cwd.clone(), path, &mut 0)
    }

    /// As [`Self::find`], from the directory and the last component on; `links` counts the symlinks so far.
    pub(crate) fn find_last(&self, place: DirPath, last: Last, follow: bool, links: &mut usize) -> Result<Found> {
        let (name, needs_directory) = match last {
            Last::Name(name, needs_directory) => (name, needs_directory),
            Last::Dot => return self.directory(place),
            Last::DotDot => return self.directory(place.parent()),
            Last::Root => return self.directory(DirPath::root(self.vfs)),
        };
        let (node, attr) = self.lookup(&place, &name)?.ok_or(Errno::NOENT)?;
        if rights::is_symlink(&attr) && (follow || needs_directory) {
            let (place, last) = self.follow(place, &node, links)?;
            let last = match last {
                Last::Name(name, slash) => Last::Name(name, slash || needs_directory),
                last => last,
            };
            return self.find_last(place, last, true, links);
        }
        if needs_directory && !rights::is_directory(&attr) {
            return Err(Errno::NOTDIR);
        }
        let place = rights::is_directory(&attr).then(|| place.child(Arc::clone(&node)));
        Ok(Found { node, attr, place })
    }

    /// Goes to where the symlink `link` in `place` leads, up to the last component.
    pub(crate) fn follow(&self, place: DirPath, link: &Node, links: &mut usize) -> Result<(DirPath, Last)> {
        *links += 1;
        if *links > SYMLINKS_MAX {
            return Err(Errno::LOOP);
        }
        let target = self.vfs.session.readlink(&self.caller(), link.id).map_err(from_guest)?;
        self.walk(place, &target, links)
    }

    /// One name in one directory; `None` where it is absent.
    pub(crate) fn lookup(&self, place: &DirPath, name: &[u8]) -> Result<Option<(Arc<Node>, Attr)>> {
        self.check(&place.node().attr()?, EXECUTE)?;
        let entry = match self.vfs.session.lookup(&self.caller(), place.node().id, name_of(name)?) {
            Err(transom_guest::Errno::NOENT) => return Ok(None),
            answer => answer.map_err(from_guest)?,
        };
        Ok(Node::of(&self.vfs.session, &entry).map(|node| (node, entry.attr)))
    }

    fn directory(&self, place: DirPath) -> Result<Found> {
        let node = Arc::clone(place.node());
        Ok(Found { attr: node.attr()?, node, place: Some(place) })
    }

    fn walk(&self, from: DirPath, path: &[u8], links: &mut usize) -> Result<(DirPath, Last)> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.len() >= PATH_LEN_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut place = if path[0] == b'/' { DirPath::root(self.vfs) } else { from };
        let mut components = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).peekable();
        let ends_with_slash = path.ends_with(b"/");
        while let Some(component) = components.next() {
            let is_last = components.peek().is_none();
            match (component, is_last) {
                (b".", true) => return Ok((place, Last::Dot)),
                (b"..", true) => return Ok((place, Last::DotDot)),
                (name, true) => return Ok((place, Last::Name(name.to_vec(), ends_with_slash))),
                (b".", false) => self.check(&place.node().attr()?, EXECUTE)?,
                (b"..", false) => {
                    self.check(&place.node().attr()?, EXECUTE)?;
                    place = place.parent();
                }
                (name, false) => {
                    let found = self.find_last(place, Last::Name(name.to_vec(), true), true, links)?;
                    place = found.place.ok_or(Errno::NOTDIR)?;
                }
            }
        }
        Ok((place, Last::Root))
    }
}

/// A name that may be sent.
pub(crate) fn name_of(name: &[u8]) -> Result<Name<'_>> {
    if name.len() > 255 {
        return Err(Errno::NAMETOOLONG);
    }
    Name::new(name).map_err(|_| Errno::INVAL)
}
