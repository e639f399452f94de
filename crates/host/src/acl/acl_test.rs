use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use rustix::fs::XattrFlags;
use transom_wire::acl::{MASK, OTHER, OWNING_GROUP as GROUP_OBJ};
use zerocopy::IntoBytes;

use super::*;
use crate::idmap::{GidMap, Rule, UidMap};

const USER_OBJ: u16 = 0x01;

fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for &(tag, perm, id) in entries {
        value.extend_from_slice(Entry { tag: tag.into(), perm: perm.into(), id: id.into() }.as_bytes());
    }
    value
}

fn map(uids: &[&str], gids: &[&str]) -> OwnerMap {
    let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Rule>>();
    OwnerMap { uids: UidMap::new(&rules(uids)).unwrap(), gids: GidMap::new(&rules(gids)).unwrap() }
}

#[test]
fn users_and_groups_are_translated_and_the_rest_is_not() {
    let map = map(&["map:0:1000:10"], &["map:0:2000:10"]);
    let guest = [(USER_OBJ, 7, ID_NONE), (USER, 6, 5), (GROUP_OBJ, 5, ID_NONE), (GROUP, 4, 5), (MASK, 7, ID_NONE)];
    let host = [(USER_OBJ, 7, ID_NONE), (USER, 6, 1005), (GROUP_OBJ, 5, ID_NONE), (GROUP, 4, 2005), (MASK, 7, ID_NONE)];
    let mut value = list(&guest);
    AclName::Access.to_host(&mut value, &map).unwrap();
    assert_eq!(value, list(&host));
    AclName::Default.to_guest(&mut value, &map).unwrap();
    assert_eq!(value, list(&guest));
}

#[test]
fn what_is_no_list_is_refused() {
    let map = map(&["forbid-guest:7:1"], &[]);
    let refused = |mut value: Vec<u8>| AclName::Access.to_host(&mut value, &map).unwrap_err();
    assert_eq!(refused(vec![2, 0, 0]), Errno::INVAL);
    assert_eq!(refused(vec![1, 0, 0, 0]), Errno::OPNOTSUPP);
    assert_eq!(refused([list(&[(USER, 7, 1)]), vec![0]].concat()), Errno::INVAL);
    assert_eq!(refused(list(&[(USER, 7, ID_NONE)])), Errno::INVAL);
    assert_eq!(refused(list(&[(GROUP, 7, ID_NONE)])), Errno::INVAL);
    assert_eq!(refused(list(&[(USER, 7, 7)])), Errno::PERM);
    assert_eq!(refused(vec![2; XATTR_VALUE_LEN_MAX + 1]), Errno::TOOBIG);
    assert_eq!(AclName::Access.to_host(&mut [], &map), Ok(()));
    assert_eq!(AclName::Access.to_guest(&mut [9; 4], &map), Err(Errno::IO));
}

#[test]
fn names_and_flags_are_told_apart() {
    assert_eq!(AclName::of(b"system.posix_acl_access"), Some(AclName::Access));
    assert_eq!(AclName::of(b"system.posix_acl_default"), Some(AclName::Default));
    assert_eq!(AclName::of(b"system.posix_acl"), None);
    assert!(AclName::Access.kills_set_group_id(SETXATTR_ACL_KILL_SGID));
    assert!(!AclName::Access.kills_set_group_id(0));
    assert!(!AclName::Default.kills_set_group_id(SETXATTR_ACL_KILL_SGID));
}

/// The host's kernel accepts a translated list, and returns it as the guest set it.
#[test]
fn a_translated_list_is_the_hosts_own() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let map = map(&["map:0:1000:10"], &["squash-guest:0:7:100"]);
    let guest = [
        (USER_OBJ, 6, ID_NONE),
        (USER, 4, 5),
        (GROUP_OBJ, 4, ID_NONE),
        (GROUP, 4, 7),
        (MASK, 6, ID_NONE),
        (OTHER, 0, ID_NONE),
    ];
    let mut value = list(&guest);
    AclName::Access.to_host(&mut value, &map).unwrap();
    match rustix::fs::setxattr(file.path(), "system.posix_acl_access", &value, XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => return println!("SKIPPED: no ACLs here"),
        outcome => outcome.unwrap(),
    }
    let mut told = [0; 256];
    let len = rustix::fs::getxattr(file.path(), "system.posix_acl_access", &mut told).unwrap();
    AclName::Access.to_guest(&mut told[..len], &map).unwrap();
    assert_eq!(&told[..len], list(&guest));
}

#[test]
fn set_group_id_goes_and_the_other_bits_stay() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let proc_fds = ProcFds::open().unwrap();
    for (before, after) in [(0o2750, 0o750), (0o6711, 0o4711), (0o640, 0o640)] {
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(before)).unwrap();
        kill_set_group_id(&proc_fds, file.as_file()).unwrap();
        assert_eq!(file.path().metadata().unwrap().permissions().mode() & 0o7777, after);
    }
}

proptest! {
    /// For any input: no panic, the length stays, and without rules nothing changes.
    #[test]
    fn the_identity_changes_nothing(
        mut value in proptest::collection::vec(any::<u8>(), 0..100),
        is_list in any::<bool>(),
    ) {
        if is_list && value.len() >= 4 {
            value[..4].copy_from_slice(&VERSION.to_le_bytes());
        }
        let before = value.clone();
        let _ = AclName::Access.to_host(&mut value, &OwnerMap::default());
        prop_assert_eq!(&value, &before);
        let _ = AclName::Access.to_guest(&mut value, &OwnerMap::default());
        prop_assert_eq!(&value, &before);
    }
}
