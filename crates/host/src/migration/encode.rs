//! Writes a state: the second version, then our records.

use super::{FileHandle, Inode, Location, State, postcard::Writer, records};

/// The second version, as a variant of the enumeration.
const V2: u64 = 1;

/// Writes a state.
///
/// Paths that are not UTF-8 go into a record of ours; to virtiofsd, these inodes are lost. So are such children.
pub fn encode(state: &State<'_>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u64(V2);
    writer.u64(state.inodes.len() as u64);
    state.inodes.iter().for_each(|one| inode(&mut writer, one));
    writer.u64(state.next_inode);
    writer.u64(state.handles.len() as u64);
    for handle in &state.handles {
        writer.u64(handle.id);
        writer.u64(handle.inode);
        writer.u64(0);
        writer.i32(handle.flags);
    }
    writer.u64(state.next_handle);
    let negotiated = &state.negotiated;
    for flag in
        [negotiated.writeback, negotiated.announce_submounts, negotiated.posix_acl, negotiated.sup_group_extension]
    {
        writer.bool(flag);
    }
    writer.u64(state.mounts.len() as u64);
    for (mount, path) in &state.mounts {
        writer.u64(*mount);
        writer.bytes(path.as_bytes());
    }
    records::write(state, &mut writer);
    writer.0
}

fn inode(writer: &mut Writer, inode: &Inode<'_>) {
    writer.u64(inode.id);
    writer.u64(inode.refcount);
    match &inode.location {
        Location::Root => writer.u64(0),
        Location::Child { parent, name } if std::str::from_utf8(name).is_ok() => {
            writer.u64(1);
            writer.u64(*parent);
            writer.bytes(name);
        }
        Location::Path(path) if std::str::from_utf8(path).is_ok() => {
            writer.u64(3);
            writer.bytes(path);
        }
        Location::Child { .. } | Location::Lost | Location::Path(_) => writer.u64(2),
        Location::Handle(handle) => {
            writer.u64(4);
            file_handle(writer, handle);
        }
    }
    writer.bool(inode.handle.is_some());
    if let Some(handle) = &inode.handle {
        file_handle(writer, handle);
    }
}

fn file_handle(writer: &mut Writer, handle: &FileHandle<'_>) {
    writer.u64(handle.mount);
    writer.i32(handle.type_);
    writer.bytes(&handle.bytes);
}
