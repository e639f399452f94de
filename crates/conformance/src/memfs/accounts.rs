//! The sums that a tree maintains, recomputed from scratch.

use std::collections::BTreeMap;

use super::tree::{Content, INODE_BYTES, ROOT, Tree};
use crate::memfs::names::NAME_BYTES;

impl Tree {
    /// Panics where a sum, a count of links or a parent is not what the names say.
    pub(super) fn check_accounts(&self) {
        let mut bytes = 0;
        let mut links: BTreeMap<u64, u32> = BTreeMap::from([(ROOT, 2)]);
        for inode in self.inodes() {
            let xattrs: usize = inode.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
            bytes += INODE_BYTES + xattrs as u64;
            match &inode.content {
                Content::File(data) | Content::Symlink(data) => bytes += data.len() as u64,
                Content::Special => {}
                Content::Directory(directory) => {
                    assert_eq!(directory.names.len(), directory.order.len());
                    for (bytes_of_name, name) in &directory.names {
                        bytes += NAME_BYTES + bytes_of_name.len() as u64;
                        let named = self.inode(name.nodeid).expect("a name leads to an inode");
                        if let Content::Directory(child) = &named.content {
                            assert_eq!(child.parent, inode.nodeid);
                            *links.entry(inode.nodeid).or_default() += 1;
                            *links.entry(name.nodeid).or_default() += 2;
                        } else {
                            *links.entry(name.nodeid).or_default() += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(bytes, self.bytes());
        assert!(bytes <= self.limits().bytes && self.inode_count() <= self.limits().inodes);
        for inode in self.inodes() {
            assert_eq!(inode.nlink, links.get(&inode.nodeid).copied().unwrap_or(0), "links of inode {}", inode.nodeid);
            let is_reachable = inode.nlink > 0 || inode.lookups > 0 || inode.opens > 0;
            assert!(is_reachable, "inode {} is of no use", inode.nodeid);
        }
    }
}
