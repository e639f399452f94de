//! Access control lists: the access that they grant, if the session has negotiated POSIX_ACL.
//!
//! The server stores them as extended attributes, and reports a list's mask as the group bits of the mode. The client
//! evaluates them on behalf of its callers. Source: acl(5).

use alloc::vec::Vec;

use transom_wire::{
    acl::{ACCESS, Entry, GROUP, Header, MASK, OTHER, OWNING_GROUP, USER, VERSION},
    attr::Attr,
    ops::init::InitFlags,
};
use zerocopy::FromBytes as _;

use super::{Credentials, Fs};
use crate::{Errno, Platform, session::Caller, volume::Inode};

impl<P: Platform> Fs<P> {
    /// Returns the list that decides about `inode`, if any: for its owner and for root the mode decides.
    pub(super) fn access_list(
        &self,
        caller: &Caller<'_>,
        inode: &Inode<P>,
        attr: &Attr,
    ) -> Result<Option<Vec<u8>>, Errno> {
        let is_settled = self.volume.session().negotiated().flags.contains(InitFlags::POSIX_ACL);
        // As in Linux, a mask without permissions means that there is no list.
        let has_mask = attr.mode.get() & 0o070 != 0;
        if !is_settled || !has_mask || self.credentials.uid == 0 || attr.uid == self.credentials.uid {
            return Ok(None);
        }
        match Self::read_sized(|room| self.volume.getxattr(caller, inode, ACCESS, room)) {
            Ok(list) => Ok(Some(list).filter(|list| !list.is_empty())),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Credentials {
    /// Returns whether `list`, of a file with another owner and the group `gid`, allows all of `mask`. Returns `None`
    /// if the list is invalid.
    pub(super) fn may_by_list(&self, list: &[u8], gid: u32, mask: u32) -> Option<bool> {
        let (header, entries) = Header::ref_from_prefix(list).ok()?;
        let entries = <[Entry]>::ref_from_bytes(entries).ok().filter(|_| header.version == VERSION)?;
        let find = |tag: u16| entries.iter().find(|entry| entry.tag == tag).map(perm);
        let limit = find(MASK).unwrap_or(0o7);
        if let Some(entry) = entries.iter().find(|entry| entry.tag == USER && entry.id == self.uid) {
            return Some(perm(entry) & limit & mask == mask);
        }
        let is_mine = |entry: &&Entry| match entry.tag.get() {
            OWNING_GROUP => self.is_in_group(gid),
            GROUP => self.is_in_group(entry.id.get()),
            _ => false,
        };
        let mut mine = entries.iter().filter(is_mine).peekable();
        if mine.peek().is_some() {
            return Some(mine.any(|entry| perm(entry) & limit & mask == mask));
        }
        find(OTHER).map(|allowed| allowed & mask == mask)
    }
}

fn perm(entry: &Entry) -> u32 {
    entry.perm.get().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 4;
    const WRITE: u32 = 2;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn somebody(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid, groups: groups.into(), ..Credentials::default() }
    }

    #[test]
    fn a_user_is_decided_by_his_entry_then_by_any_of_his_groups_then_as_others_are() {
        let id = u32::MAX;
        let list = list(&[(1, 6, id), (2, 4, 7), (4, 0, id), (8, 2, 20), (8, 4, 21), (16, 6, id), (32, 2, id)]);
        let may = |who: &Credentials, mask| who.may_by_list(&list, 10, mask).unwrap();
        let named = somebody(7, 20, &[]);
        assert!(may(&named, READ) && !may(&named, WRITE), "the groups of a named user do not count");
        let of_owning_group = somebody(8, 10, &[]);
        assert!(
            !may(&of_owning_group, READ) && !may(&of_owning_group, WRITE),
            "nor do the rights of others for a member of a group"
        );
        let of_two = somebody(8, 10, &[20, 21]);
        assert!(may(&of_two, READ) && may(&of_two, WRITE) && !may(&of_two, READ | WRITE), "one group has to allow all");
        let other = somebody(8, 9, &[]);
        assert!(!may(&other, READ) && may(&other, WRITE));
    }

    #[test]
    fn the_mask_limits_all_but_others() {
        let id = u32::MAX;
        let list = list(&[(1, 6, id), (2, 6, 7), (4, 6, id), (16, 4, id), (32, 2, id)]);
        assert_eq!(somebody(7, 9, &[]).may_by_list(&list, 10, WRITE), Some(false));
        assert_eq!(somebody(8, 10, &[]).may_by_list(&list, 10, READ), Some(true));
        assert_eq!(somebody(8, 10, &[]).may_by_list(&list, 10, WRITE), Some(false));
        assert_eq!(somebody(8, 9, &[]).may_by_list(&list, 10, WRITE), Some(true));
    }

    #[test]
    fn bytes_that_are_no_list_decide_nothing() {
        let good = list(&[(1, 6, 0), (4, 6, 0), (32, 7, 0)]);
        let who = somebody(8, 9, &[]);
        assert_eq!(who.may_by_list(&good, 10, READ), Some(true));
        let mut other_version = good.clone();
        other_version[0] = 3;
        for bytes in [&good[..good.len() - 1], &other_version, &good[..3], &good[..4], &[]] {
            assert_eq!(who.may_by_list(bytes, 10, READ), None);
        }
    }
}
