use proptest::prelude::*;

use super::*;

const CREATE_AND_DELETE: u64 = libc::FAN_DELETE | libc::FAN_CREATE | libc::FAN_ATTRIB | libc::FAN_ONDIR;

/// The bytes of one piece of information about a file.
fn info(info_type: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
    let len = (20 + handle.len() + name.len() + 1).next_multiple_of(4);
    let mut bytes = vec![info_type, 0];
    bytes.extend((len as u16).to_ne_bytes());
    bytes.extend([7, 0, 0, 0, 9, 0, 0, 0]);
    bytes.extend((handle.len() as u32).to_ne_bytes());
    bytes.extend(1_i32.to_ne_bytes());
    bytes.extend(handle);
    bytes.extend(name);
    bytes.resize(len, 0);
    bytes
}

fn event(mask: u64, infos: &[Vec<u8>]) -> Vec<u8> {
    let infos = infos.concat();
    let mut bytes = (24 + infos.len() as u32).to_ne_bytes().to_vec();
    bytes.extend([libc::FANOTIFY_METADATA_VERSION, 0]);
    bytes.extend(24_u16.to_ne_bytes());
    bytes.extend(mask.to_ne_bytes());
    bytes.extend((-1_i32).to_ne_bytes());
    bytes.extend(42_u32.to_ne_bytes());
    bytes.extend(infos);
    bytes
}

fn handle(bytes: &[u8]) -> Object<'_> {
    Object::Handle(HandleRef { file_system: 7 | 9 << 32, type_: 1, bytes })
}

#[test]
fn a_merged_message_is_split_in_a_fixed_order() {
    let name = info(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, b"parent", b"name");
    let mut bytes = event(CREATE_AND_DELETE, &[name, info(libc::FAN_EVENT_INFO_TYPE_FID, b"object", b"")]);
    bytes.extend(event(libc::FAN_Q_OVERFLOW, &[]));

    let (record, rest) = Record::parse(&bytes).unwrap();

    assert_eq!(record.place(), Some(EntryName { parent: handle(b"parent"), name: b"name" }));
    assert_eq!((record.object, record.pid, record.is_dir()), (Some(handle(b"object")), 42, true));
    let kinds: Vec<_> = record.kinds().collect();
    assert_eq!(kinds, [ChangeKind::Created, ChangeKind::Attributes, ChangeKind::Deleted]);
    assert!(!record.is_overflow());
    let (overflow, rest) = Record::parse(rest).unwrap();
    assert!(overflow.is_overflow() && rest.is_empty());
}

#[test]
fn a_rename_has_both_places() {
    let infos = [
        info(libc::FAN_EVENT_INFO_TYPE_OLD_DFID_NAME, b"from", b"a"),
        info(libc::FAN_EVENT_INFO_TYPE_NEW_DFID_NAME, b"to", b"b"),
        info(libc::FAN_EVENT_INFO_TYPE_FID, b"object", b""),
    ];
    let bytes = event(libc::FAN_RENAME, &infos);
    let (record, _) = Record::parse(&bytes).unwrap();

    assert_eq!(record.place(), Some(EntryName { parent: handle(b"from"), name: b"a" }));
    let to = EntryName { parent: handle(b"to"), name: b"b" };
    assert_eq!(record.kinds().collect::<Vec<_>>(), [ChangeKind::Renamed { to }]);
}

#[test]
fn a_cut_message_is_an_error() {
    let bytes = event(CREATE_AND_DELETE, &[info(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, b"parent", b"name")]);
    for len in 0..bytes.len() {
        assert!(Record::parse(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), len in 0_u32..200, is_event: bool,
    ) {
        if is_event && bytes.len() >= 8 {
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes[4..8].copy_from_slice(&[libc::FANOTIFY_METADATA_VERSION, 0, 24, 0]);
        }
        if let Ok((record, rest)) = Record::parse(&bytes) {
            prop_assert!(rest.len() < bytes.len());
            let _ = record.kinds().count();
        }
    }
}
